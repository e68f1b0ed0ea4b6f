"""From a user's choice of a method and its options to what each site gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from softq.errors import UsageError
from softq.methods import METHODS, Fit, Method, Options, OptionValue
from softq.plans import SitePlan
from softq.site import Site


def check_substitutes(chosen: Iterable[tuple[str, str]], allowed: bool) -> None:
    """Refuse methods that are other functions than the softmax, unless the user allows them.

    Args:
        chosen: Ids of sites, each with the name of its method.
        allowed: What the user says.

    Raises:
        UsageError: a method is no drop-in and not allowed; the message says what would allow it.
    """
    for site, method in chosen:
        if not allowed and not METHODS.get(method).drop_in:
            raise UsageError(
                f"site {site} is a softmax, and {method} is another function, for models that were trained with it; "
                "--allow-substitute (allow_substitute=True) puts it there all the same"
            )


def check_own(site: Site, planned: SitePlan) -> None:
    """Refuse options with which a method is another function than the one that a site holds.

    Raises:
        UsageError: there is one; the message says what the graph holds.
    """
    own = site.function
    if own is None:
        return
    wanted: Mapping[str, object] = dict(own.options) | dict(own.fitted)
    given: Mapping[str, object] = dict(planned.options) | dict(planned.fitted)
    for name, value in given.items():
        if wanted.get(name) != value:
            held = ", ".join(f"{key}={wanted[key]}" for key in wanted)
            raise UsageError(f"site {site.id} holds the function {own.method} with {held}; given is {name}={value}")


def doubts(planned: Iterable[SitePlan]) -> list[str]:
    """Return what there is to say of options that hardly anyone wants, each sentence once."""
    found = [site.find_method().doubt(site.configure()) for site in planned]
    return [doubt for doubt in dict.fromkeys(found) if doubt]


def softmaxes(sites: Iterable[Site]) -> list[Site]:
    """Return the sites that take a method and are a softmax, and not another function themselves."""
    return [site for site in sites if site.takes_method and site.function is None]


def plan_sites(
    sites: Sequence[Site],
    method: str,
    settings: Mapping[str, object],
    fit: Callable[[Site, Method, Options], Fit] | None = None,
    *,
    allow_substitute: bool = False,
) -> tuple[SitePlan, ...]:
    """Return the same method and settings for every site that takes a method.

    Args:
        sites: What `locate` found.
        method: Name of the method.
        settings: Its options, as text or numbers; the others keep their defaults.
        fit: Gives the numbers of the options that are to be fitted, from calibration data; None if there are none.
        allow_substitute: Whether a method that is no drop-in may take a softmax's place.

    Raises:
        UsageError: the method or an option is unknown, a value is not allowed, or one is to be fitted without data, or
            the method is no drop-in.
    """
    chosen = METHODS.get(method)
    check_substitutes([(site.id, method) for site in softmaxes(sites)], allow_substitute)
    options = chosen.resolve(chosen.configure(settings), fit is not None)
    if options.fitted and fit is None:
        name, scope = next(iter(options.fitted.items()))
        raise UsageError(f"{method}: {name}={scope} is fitted on data; give --calibration DATA, or a number for {name}")
    planned: list[SitePlan] = []
    for site in sites:
        own = site.function
        if site.takes_method and own is not None:
            given = {name: getattr(options, name) for name in settings}
            made = SitePlan(site.id, site.fingerprint, method, dict(own.options) | given, own.fitted)
            check_own(site, made)
            planned.append(made)
        elif site.takes_method:
            own_options = _without_heads(options, settings) if site.head_axis is None else options
            found = fit(site, chosen, own_options) if fit and options.fitted else Fit({})
            own_options, found = _settle(chosen, own_options, found, settings)
            planned.append(
                SitePlan(site.id, site.fingerprint, method, own_options.to_json(), found.fitted, found.spread)
            )
    return tuple(planned)


def _settle(method: Method, options: Options, found: Fit, settings: Mapping[str, object]) -> tuple[Options, Fit]:
    """Make constants of choices that nobody asked for, where all heads agree: a table per head takes time."""
    alike: dict[str, OptionValue] = {}
    for name in dict(method.choices).keys() & found.fitted.keys():
        numbers = set(np.atleast_1d(found.fitted[name]).tolist())
        if settings.get(name) == "auto" and len(numbers) == 1:
            alike[name] = type(options).specs()[name].parse(name, numbers.pop())
    fitted = {key: value for key, value in found.fitted.items() if key not in alike}
    return replace(options, **alike), Fit(fitted, {key: value for key, value in found.spread.items() if key in fitted})


def _without_heads(options: Options, settings: Mapping[str, object]) -> Options:
    """Return options for a site without heads: what was left open (auto) is fitted for the site."""
    per_head = [name for name, scope in options.fitted.items() if scope == "head" and settings.get(name) == "auto"]
    return replace(options, **dict.fromkeys(per_head, "site"))
