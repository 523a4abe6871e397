"""`minibert report`."""

from __future__ import annotations

from pathlib import Path

import click

from minibert.errors import UserError

COMPARISON = Path("comparison.html")


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--out", type=click.Path(path_type=Path), help=f"where the page of several runs goes [default: {COMPARISON}]"
)
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write RUN/report.html and RUN/README.md anew, also of a run that is not finished; several RUNs: one page that
    compares them.
    """
    if not runs:
        raise UserError("no run was named", where="RUN", fix="minibert report RUN, or minibert report A B C")
    from minibert.report.compare import write_comparison
    from minibert.report.page import write_report
    from minibert.view.page import check_place

    if len(runs) == 1:
        if out is not None:
            raise UserError("is for the page of several runs", where="--out", fix="leave it out: RUN/report.html")
        click.echo(write_report(runs[0]))
        return
    check_place(out or COMPARISON)
    write_comparison(runs, out or COMPARISON)
    click.echo(out or COMPARISON)
