"""Errors of whoever typed the command."""

import click


class Mistake(click.ClickException):
    """What was asked for cannot be meant; the message says what could be."""

    exit_code = 2
