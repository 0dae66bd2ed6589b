// Shows a picture that the kernel drew, and tells the kernel which views are shown. The cancel button asks the Jupyter
// server, which answers while a cell computes; where a page has no such server, it asks the kernel.

const ALIVE_MILLISECONDS = 30000;

// Bring `old` to look as `fresh` does and keep what is the same, so that a selection and the focus survive an update.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, place) => (place < before.length ? morph(before[place], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

function draw(model, area) {
  const box = document.createElement("template");
  box.innerHTML = `<div>${model.get("html")}</div>`;
  morph(area, box.content.firstChild);
}

// Beside the live view stands the picture as it was, for pages that have no kernel and no JavaScript of ours.
function hideStill(model) {
  for (const still of document.querySelectorAll(`[data-jupyter-gpu-still="${model.get("key")}"]`)) {
    (still.closest(".jp-OutputArea-child") ?? still).style.display = "none";
  }
}

// JupyterLab keeps the state of widgets in the notebook only where its user has asked for that. Ours is small, and
// without it the notebook would say "model not found" when it is opened again; so it goes along with each save.
const kept = new WeakSet();

function keepOnSave(manager) {
  const context = manager?.context;
  if (!context?.saveState?.connect || !manager.get_state_sync || kept.has(context)) return;
  kept.add(context);
  context.saveState.connect((_, state) => {
    if (state === "started") keep(manager, context.model);
  });
}

function keep(manager, notebook) {
  try {
    const all = manager.get_state_sync({ drop_defaults: true }).state;
    const ours = Object.entries(all).filter(([, it]) => isOurs(it));
    const layouts = ours.map(([, it]) => String(it.state.layout ?? "").replace("IPY_MODEL_", ""));
    const before = notebook.getMetadata("widgets") ?? {};
    const others = Object.entries(before[STATE_TYPE]?.state ?? {}).filter(([, it]) => !isOurs(it));
    const state = Object.fromEntries([...others, ...ours, ...layouts.filter((id) => all[id]).map((id) => [id, all[id]])]);
    if (ours.length) {
      const whole = { version_major: 2, version_minor: 0, state };
      notebook.setMetadata("widgets", { ...before, [STATE_TYPE]: whole });
    }
  } catch {
    // It is no notebook, or its manager is another one: then the picture beside the view is what remains.
  }
}

const STATE_TYPE = "application/vnd.jupyter.widget-state+json";
const isOurs = (it) => String(it?.state?._anywidget_id ?? "").startsWith("jupyter_gpu.");

function server() {
  const said = document.getElementById("jupyter-config-data");
  if (!said) return null;
  try {
    const config = JSON.parse(said.textContent);
    return config.baseUrl ? { base: config.baseUrl, token: config.token || "" } : null;
  } catch {
    return null;
  }
}

// Answers null when it is done, a sentence when it was refused, and undefined where no server of ours was reached.
async function askServer(job) {
  const found = server();
  if (!found) return undefined;
  const headers = { "Content-Type": "application/json" };
  const cookie = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/);
  if (cookie) headers["X-XSRFToken"] = decodeURIComponent(cookie[1]);
  if (found.token) headers.Authorization = `token ${found.token}`;
  const url = `${found.base.replace(/\/?$/, "/")}jupyter-gpu/api/v1/workloads/${job}/cancel`;
  try {
    const answer = await fetch(url, { method: "POST", headers, credentials: "same-origin", body: "{}" });
    if (answer.ok) return null;
    const error = await answer.json().catch(() => ({}));
    return error.code ? [error.message, error.hint].filter(Boolean).join(" ") : undefined;
  } catch {
    return undefined;
  }
}

// Two steps, since what is cancelled is gone: the button asks, and then does it.
function cancelButton(model, el) {
  const row = document.createElement("div");
  const [ask, yes, no] = ["Cancel job", "Yes, cancel it", "Keep it"].map((text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "jupyter-gpu-button";
    button.textContent = text;
    return button;
  });
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  row.className = "jupyter-gpu-row";
  row.append(ask, yes, no, said);
  el.append(row);
  ask.dataset.gpu = "job-cancel";
  yes.dataset.gpu = "job-cancel-yes";
  let asking = false;
  const show = () => {
    const job = model.get("cancels");
    ask.textContent = `Cancel job ${job}`;
    ask.hidden = !job || asking;
    yes.hidden = no.hidden = !job || !asking;
    row.hidden = !job && !said.textContent;
  };
  const turn = (on) => {
    asking = on;
    show();
    (on ? no : ask).focus();
  };
  ask.addEventListener("click", () => turn(true));
  no.addEventListener("click", () => turn(false));
  yes.addEventListener("click", async () => {
    const job = model.get("cancels");
    asking = false;
    said.textContent = "Asking ...";
    show();
    const refused = await askServer(job);
    if (refused === undefined) model.send({ says: "cancel" });
    said.textContent = refused === undefined ? "The kernel does it when its cell is done." : refused || "";
    show();
  });
  const changed = () => {
    said.textContent = "";
    show();
  };
  model.on("change:cancels", changed);
  show();
  return () => model.off("change:cancels", changed);
}

function render({ model, el }) {
  const view = globalThis.crypto?.randomUUID?.() ?? String(Math.random());
  const area = document.createElement("div");
  el.classList.add("jupyter-gpu");
  el.append(area);
  const redraw = () => {
    draw(model, area);
    hideStill(model);
  };
  redraw();
  keepOnSave(model.widget_manager);
  model.on("change:html", redraw);
  const endButton = model.get("cancels") === undefined ? () => {} : cancelButton(model, el);
  const say = (says) => {
    try {
      model.send({ says, view });
    } catch {
      // There is no kernel: the picture is as it was.
    }
  };
  // A page that nobody sees needs no figures, and each of them would count as use of the server for who ends idle ones.
  const seen = () => say(document.hidden ? "gone" : "shown");
  seen();
  document.addEventListener("visibilitychange", seen);
  const timer = setInterval(() => document.hidden || say("shown"), ALIVE_MILLISECONDS);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", seen);
    model.off("change:html", redraw);
    endButton();
    say("gone");
  };
}

export default { render };
