"""`farhand serve`."""

from importlib import import_module
from pathlib import Path

import click

from farhand.cli.logs import LEVELS, start_log
from farhand.model.errors import FarhandError


@click.command()
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings: farhand.toml.")
@click.option("--host", metavar="ADDRESS", help="Listen here [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), help="Listen on this port [8631].")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Data folder [farhand-data].")
@click.option("--database", metavar="URL", help="sqlite:///PATH or postgresql://… [SQLite in --data].")
@click.option(
    "--log", "level", type=click.Choice(LEVELS), default="info", show_default=True, help="Log from here on."
)
def serve(
    config: Path | None,
    host: str | None,
    port: int | None,
    data: Path | None,
    database: str | None,
    level: str,
) -> None:
    """Run a server until Ctrl-C.

    FARHAND_TOKEN sets the root token; without it one is made in the data folder.
    """
    need_server()
    from farhand.cli import compose as server
    from farhand.server import config as settings
    from farhand.systems import find_systems, load, tables_of

    systems = find_systems()
    overrides = {"host": host, "port": port, "data": data, "database": database}
    chosen = settings.load(config, overrides, tables=tables_of(systems))
    start_log(level)
    server.run(chosen, systems=systems, load=load, announce=click.echo)


def need_server() -> None:
    """Raises FarhandError, saying what to install, where the packages of a server are missing."""
    try:
        import_module("farhand.cli.compose")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "farhand":
            raise
        raise FarhandError(
            f"a server needs packages that are not installed ({error.name})\n"
            "Install them with: pip install 'farhand[server]'"
        ) from error
