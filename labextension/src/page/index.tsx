/** What the page of a hub's service loads: the panel of JupyterLab in a page of its own, and the operator's view. */
import * as React from 'react';
import { createRoot } from 'react-dom/client';

import { Acts } from '../acts';
import { GpuModel } from '../model';
import { App } from './app';
import { PageFace } from './face';
import { Operating } from './operating';
import { Roll } from './roll';
import { commandsOf, runner } from './run';
import { type IPageData, ServiceApi } from './service';

function start(place: HTMLElement, data: IPageData): void {
  const model = new GpuModel(new ServiceApi(data), window.localStorage);
  const face = new PageFace(() => {
    model.renew();
  });
  const acts = new Acts(model, face);
  const roll = new Roll(model);
  const operating = new Operating(model, acts, face, roll);
  const run = runner(commandsOf(model, acts, operating, face));
  createRoot(place).render(<App data={data} model={model} face={face} roll={roll} run={run} />);
}

const place = document.getElementById('jp-gpu-page');
const data = document.getElementById('jp-gpu-data');
if (place && data) {
  start(place, JSON.parse(data.textContent ?? '') as IPageData);
}
