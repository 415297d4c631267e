"""Options by click."""

import click


@click.command()
@click.argument("data")
@click.option("--batch-size", "-b", default=32, show_default=True, help="Samples of a step.")
@click.option("--num-workers", default=2, show_default=True, type=click.IntRange(0, 64), help="Processes that load.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--compile/--no-compile", default=False, show_default=True, help="Compile the model.")
@click.option("--pin-memory/--no-pin-memory", default=True, show_default=True, help="A text that is so long that click has to break it somewhere.")
@click.option("--amp", is_flag=True, help="Mixed precision.")
def main(**options):
    """Trains on DATA."""


main()
