"""`python -m farhand.cli`: the command line of this very interpreter."""

from farhand.cli.main import main

if __name__ == "__main__":
    main(prog_name="farhand")
