"""Bytes on the disk for a finished job."""

from bench.measure import Context, Measure, Row, at_most

ORDER = 70
PAYLOAD = 300


def run(context: Context) -> Measure:
    """SQLite: the file with all its indexes after the log was folded in, less the empty file."""
    jobs = 3_200 if context.options.short else 12_800
    with context.folder() as folder:
        result = context.stored("size", url=f"sqlite:///{folder / 'store.db'}", jobs=jobs, payload=PAYLOAD)
    largest = ", ".join(f"{name} {size:.0f}" for name, size in list(result["tables"].items())[:4])
    return Measure(
        name="size",
        rows=[
            Row(
                measure=f"bytes on disk per finished job ({PAYLOAD}-byte payload, SQLite)",
                ours=largest,
                baseline="",
                value=result["bytes_per_job"],
                unit="B",
                to_land=at_most(1_400),
                goal=at_most(900),
            )
        ],
        details=result,
    )
