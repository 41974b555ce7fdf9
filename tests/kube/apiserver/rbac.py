"""Roles: who may ask what, by the rules that a deployment ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apiserver.asked import Asked

Json = dict[str, Any]


def allowed_by(rules: Mapping[str, Sequence[Json]]) -> Callable[[Asked], bool]:
    """A check of requests.

    Args:
        rules: of each user, as in a ClusterRole, or with the `namespace` of a Role; a user without any may do
            everything, as those who set up a test.
    """

    def may(asked: Asked) -> bool:
        of_user = rules.get(asked.user)
        return of_user is None or any(_grants(rule, asked) for rule in of_user)

    return may


def reviewed(review: Json, user: str, may: Callable[[Asked], bool]) -> Json:
    """A SelfSubjectAccessReview, or a SelfSubjectReview, with its answer."""
    if review.get("kind") == "SelfSubjectReview":
        return {**review, "status": {"userInfo": {"username": user, "groups": ["system:authenticated"]}}}
    spec = review.get("spec") or {}
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        allowed = may(Asked("get", "", user=user))
    else:
        group = wanted.get("group", "")
        resource = f"{wanted.get('resource', '')}.{group}" if group else wanted.get("resource", "")
        where, name, part = (wanted.get(each, "") for each in ("namespace", "name", "subresource"))
        allowed = may(Asked(wanted.get("verb", ""), resource, where, name, part, user))
    return {**review, "status": {"allowed": allowed, **({} if allowed else {"reason": "no rule allows it"})}}


def _grants(rule: Json, asked: Asked) -> bool:
    plural, _, group = asked.resource.partition(".")
    resource = f"{plural}/{asked.part}" if asked.part else plural
    names = rule.get("resourceNames")
    return (
        rule.get("namespace", asked.namespace) == asked.namespace
        and _has(rule["apiGroups"], group)
        and _has(rule["resources"], resource)
        and _has(rule["verbs"], asked.verb)
        and (not names or asked.name in names)
    )


def _has(words: Sequence[str], word: str) -> bool:
    return "*" in words or word in words
