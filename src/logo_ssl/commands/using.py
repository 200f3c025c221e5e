"""How is an encoder put to use from a shell? embed, search, export, and the doctor."""

from collections.abc import Sequence

from ..arguments import asks_for_help, parse, refuse_without
from ..encoder_names import refuse_no_encoder
from ..output_names import refuse_early


def use(name: str, example: str, arguments: Sequence[str]) -> None:
    """Put an encoder to use: embed, search or export."""
    refuse_without(arguments, "which encoder", f"{name} {example}")
    if not asks_for_help(arguments):
        refuse_no_encoder(arguments[0])
        refuse_early(name, arguments)
    from ..embedding.commands import USES

    parse(USES[name], arguments, prog=name).run()


def doctor(arguments: Sequence[str]) -> None:
    """Look at this machine: versions, devices, speed, and what would be chosen."""
    from ..embedding.doctor import Doctor

    parse(Doctor, arguments, prog="doctor").run()
