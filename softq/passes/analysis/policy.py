"""The policy: which of the softmaxes that could be converted are, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from softq.errors import UsageError
from softq.forms.matching.masks import NO_MASK
from softq.methods import METHODS
from softq.nearest import nearest
from softq.passes.analysis.candidates import Finding, shorten
from softq.site import OwnFunction, Role, Verdict

_EXACT_ONLY = "exact only: {} the logarithm of its weights, and with another method a weight of zero would be -inf"
_KEPT: dict[Role, str] = {
    "selector": "a selector: a small error of its weights can change the choice",
    "feature-map": "a feature map of linear attention: its row holds features, not the weights of an average",
    "classifier": "a classifier head or output: its probabilities are the interface",
    "router": "a router of experts, which stays exact by default",
    "sampler": "a sampler: what is drawn from it is a discrete decision",
    "detector": "a part of a detector or of a sampling grid: small weights move coordinates",
    "other": "not recognised as attention",
}


@dataclass(frozen=True)
class Policy:
    """What is to be converted; the fields are arguments of `locate`.

    Raises:
        UsageError: all sites and a selection are asked for.
    """

    all_sites: bool = False
    select: Sequence[str] = ()
    rewrites: Collection[str] | None = None
    logarithms: Collection[str] | bool = False
    methods: Mapping[str, str] | str = ""

    def __post_init__(self) -> None:
        if self.all_sites and self.select:
            names = ", ".join(self.select)
            raise UsageError(f"all sites and a selection of sites ({names}) cannot be asked for at once")


def judge(found: Sequence[Finding], policy: Policy) -> tuple[Finding, ...]:
    """Return the findings with the verdicts of a policy.

    Raises:
        UsageError: a glob matches no site.
    """
    ids = [finding.site.id for finding in found]
    chosen: set[str] | None = None if not policy.select and policy.rewrites is None else set()
    for glob in policy.select:
        hits = {i for i in ids if i == glob or fnmatchcase(i, glob)}
        if not hits:
            near = f"nearest: {', '.join(nearest(glob, ids))}; " if nearest(glob, ids) else ""
            raise UsageError(f"no softmax matches {glob!r}; {near}{shorten(ids)}")
        chosen = hits | (chosen or set())
    judged = [_judge(finding, policy, chosen) for finding in found]
    inside = {
        node: finding.site
        for finding in judged
        if finding.match.function is not None and finding.site.verdict.action == "convert"
        for node in finding.match.nodes
        if node is not finding.node
    }
    for place, finding in enumerate(judged):
        if (whole := inside.get(finding.node)) is not None:
            verdict = Verdict("keep", f"it is a part of {whole.id}, which is converted as a whole")
            judged[place] = replace(finding, site=replace(finding.site, verdict=verdict, rewrite=""))
    return tuple(judged)


def _judge(finding: Finding, policy: Policy, chosen: set[str] | None) -> Finding:
    if finding.site.verdict.action != "convert":
        return finding
    given = policy.methods if isinstance(policy.methods, str) else policy.methods.get(finding.site.id, "")
    around = None if finding.around is None else finding.around.function
    if finding.around is not None and around is not None and around.method == given:
        # The chosen method is the whole function; any other replaces the softmax alone.
        site = replace(finding.site, function=around)
        finding = replace(finding, site=site, match=finding.around, mask=NO_MASK, order=None)
    site = finding.site
    if site.function is not None and site.function.method != given:
        reason = f"not a softmax: it is {_describe(site.function)}, and only that method can replace it"
        return replace(finding, site=replace(site, verdict=Verdict("keep", reason)))
    if finding.order is not None and (chosen is None if policy.rewrites is None else site.id in policy.rewrites):
        verdict = Verdict("convert", finding.order.explain())
        return replace(finding, site=replace(site, verdict=verdict, rewrite=finding.order.kind))
    kept = f"{_KEPT.get(site.role, '')} ({finding.why})"
    tail = _explain(finding, kept, around)
    able = policy.logarithms if isinstance(policy.logarithms, bool) else site.id in policy.logarithms
    if site.logarithm and not able:
        taker = "its result is" if finding.match.logarithm else "the graph takes"
        verdict = Verdict("keep", _EXACT_ONLY.format(taker))
    elif chosen is not None:
        verdict = Verdict("convert", f"selected; {tail}")
        verdict = verdict if site.id in chosen else Verdict("keep", "not among the selected sites")
    elif policy.all_sites:
        verdict = Verdict("convert", f"all sites were asked for; {tail}")
    elif site.role == "attention":
        verdict = Verdict("convert", tail)
    elif site.consumer == "nothing":
        verdict = Verdict("keep", "nothing reads its result")
    else:
        verdict = Verdict("keep", kept)
    return replace(finding, site=replace(site, verdict=verdict))


def _explain(finding: Finding, kept: str, around: OwnFunction | None) -> str:
    """Return the reason for converting a site: its use, or why it is kept by default; and what remains."""
    site = finding.site
    inside = site.consumer == "itself"
    use = "the product with V is inside the operator" if inside else f"the result goes into {site.consumer}"
    parts = [f"attention: {use}" if site.role == "attention" else f"by default it is kept: {kept}"]
    if site.role == "selector":
        parts.append("`softq check` counts the choices that change")
    if site.verdict.reason:
        parts.append(site.verdict.reason)
    if around is not None:
        parts.append(f"together with the operators before it, it is {_describe(around)}")
    if finding.mask.why:
        parts.append(f"its mask stays in the scores: {finding.mask.why}")
    return "; ".join(parts)


def _describe(function: OwnFunction) -> str:
    """Return a function in words: its method and the options that are not the default ones."""
    method = METHODS.get(function.method)
    usual = method.resolve(method.configure({}), False).to_json()
    options = {name: value for name, value in function.options.items() if value != usual[name]}
    options |= {name: "/".join(f"{number:g}" for number in numbers) for name, numbers in function.fitted.items()}
    with_options = " with " + ", ".join(f"{name}={value}" for name, value in options.items()) if options else ""
    return f"the function of the method {method.name}{with_options}"
