"""Plots of the stories: each constant of these modules is a title and a list of beats.

`$h` hero, `$f` friend, `$g` a third person, `$o` and `$u` things, `$p`, `$q`, `$r` locations, `$out` somewhere outside. A beat that
begins with `?` is optional; `~` marks a possible interlude with hero and friend, `^` one with the hero alone.
"""
import importlib
import pkgutil

PLOTS = [plot for module in pkgutil.iter_modules(__path__) for name, plot in sorted(vars(importlib.import_module(f"plots.{module.name}")).items()) if name.isupper()]
