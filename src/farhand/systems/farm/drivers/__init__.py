"""Drivers: one per kind of machine, all behind `base.Driver`."""
