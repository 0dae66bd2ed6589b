"""Who may do what under a hub: our scopes, the four roles made of them, and what is asked of the hub for each.

Roles add up and never take away, so everybody can be a researcher only where nobody is a contractor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import InvalidAsk
from ..model import Scope

PREFIX = "custom:jupyter-gpu:"

_DESCRIPTIONS = {
    Scope.READ: "See the GPUs and whose work is on them and waits for them.",
    Scope.LOGS: "Read the logs of others' jobs.",
    Scope.METRICS: "Read figures of GPUs and of the queue, as a monitoring system does.",
    Scope.RESERVE: "Reserve GPUs for oneself.",
    Scope.SUBMIT: "Submit jobs for oneself.",
    Scope.OPERATE: "Cancel anybody's work, and take GPUs out of use.",
    Scope.ADMIN: "Do everything with GPUs.",
}
_CONTAINED = {
    Scope.OPERATE: (Scope.READ, Scope.METRICS, Scope.LOGS),
    Scope.ADMIN: tuple(it for it in Scope if it is not Scope.ADMIN),
}

CONTRACTOR = (Scope.RESERVE, Scope.SUBMIT)
RESEARCHER = (Scope.READ, Scope.METRICS, *CONTRACTOR)
#: What a server may do for who visits it, and is not its owner: whoever runs it could use their token for anything.
VISITOR = (Scope.READ, Scope.METRICS)
OPERATOR = (*RESEARCHER, Scope.LOGS, Scope.OPERATE)
ADMIN = (Scope.ADMIN,)
#: What the service itself may ask the hub: which servers live, to count a lease in use as activity, and which groups
#: somebody is in who is on a GPU without a lease.
SERVICE = ("list:users", "read:servers", "read:users:groups", "users:activity")


class People(NamedTuple):
    """Users and groups of the hub."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def read_people(told: Any, what: str) -> People:
    """Read what an admin writes: names of users, or {"users": [...], "groups": [...]}."""
    hint = f'Write {what}=["ana"], or {what}={{"users": ["ana"], "groups": ["staff"]}}.'
    lists = told if isinstance(told, Mapping) else {"users": told}
    unknown = sorted(set(lists) - {"users", "groups"})
    if unknown:
        raise InvalidAsk(f"{what}: there is no {unknown[0]!r}.", hint=hint)
    read = {}
    for kind, names in lists.items():
        # A string is iterable too, and its letters are nobody.
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InvalidAsk(f"{what}: {names!r} is no list of names.", hint=hint)
        read[kind] = tuple(names)
        wrong = [it for it in read[kind] if not isinstance(it, str) or not it.strip()]
        if wrong:
            raise InvalidAsk(f"{what}: {wrong[0]!r} is no name.", hint=hint)
    return People(**read)


class Roles(NamedTuple):
    """Who has which role; `researchers` None is everybody."""

    researchers: People | None
    contractors: People
    operators: People
    admins: People

    def check(self) -> None:
        """Refuse what roles cannot say: somebody who is less by one role is more by another."""
        if self.contractors == People():
            return
        if self.researchers is None:
            raise InvalidAsk(
                "contractors are named, but everybody is a researcher, who sees others' work.",
                hint='Name the researchers too: researchers={"groups": ["lab"]}.',
            )
        for kind in ("users", "groups"):
            more = {
                name for people in (self.researchers, self.operators, self.admins) for name in getattr(people, kind)
            }
            both = sorted(more & set(getattr(self.contractors, kind)))
            if both:
                raise InvalidAsk(
                    f"contractors: {both[0]!r} has another role too, and roles add up.", hint="Name them once."
                )

    def specs(self, service: str) -> list[dict[str, Any]]:
        """The roles as `c.JupyterHub.load_roles` takes them. Those of nobody are there to be given later."""
        people = (
            ("researcher", RESEARCHER, self.researchers or People()),
            ("contractor", CONTRACTOR, self.contractors),
            ("operator", OPERATOR, self.operators),
            ("admin", ADMIN, self.admins),
        )
        return [
            _spec(name, scopes_of(own, service), who) for name, own, who in people
        ] + [
            {
                "name": "jupyter-gpu-service",
                "description": "What the GPU service asks the hub",
                "scopes": list(SERVICE),
                "services": [service],
            }
        ]  # fmt: skip


def _spec(name: str, scopes: tuple[str, ...], who: People) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": f"jupyter-gpu-{name}",
        "description": f"GPUs: {name}",
        "scopes": list(scopes),
    }
    # An empty list would be refused where the authenticator gives the roles.
    return spec | {kind: list(names) for kind, names in who._asdict().items() if names}


def scopes_of(own: Iterable[Scope], service: str) -> tuple[str, ...]:
    """Our scopes as the hub names them, with the right to come to the service at all."""
    return (*(f"{PREFIX}{it}" for it in own), access_to(service))


def access_to(service: str) -> str:
    """The hub's scope of who may come to a service."""
    return f"access:services!service={service}"


def custom_scopes() -> dict[str, dict[str, Any]]:
    """Our scopes as `c.JupyterHub.custom_scopes` takes them."""
    return {
        f"{PREFIX}{scope}": {"description": text}
        | ({"subscopes": [f"{PREFIX}{it}" for it in _CONTAINED[scope]]} if scope in _CONTAINED else {})
        for scope, text in _DESCRIPTIONS.items()
    }
