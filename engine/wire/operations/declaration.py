"""What each operation declares beside its fields: the script that carries it out, how its fields fill the script's slots, and how
the script's reply is read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class Declaration:
    """The base of the operations: `class Pause(Declaration, script="pause", slots={"class": "class_name"})`."""

    __slots__ = ()
    #: The script that carries it out, in the folder of each model; '' where a model makes its call in another way.
    script: ClassVar[str] = ""
    #: Slot of the script's header -> the field that fills it, where their names differ. A field of a field is `lease.fence`.
    slots: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: What an error message calls it; '' = the words of its class's name.
    label: ClassVar[str] = ""
    #: Whether its call is sent again until it is answered. False where waiting for it would only hold up others.
    patient: ClassVar[bool] = True

    def __init_subclass__(
        cls,
        script: str | None = None,
        slots: Mapping[str, str] | None = None,
        label: str | None = None,
        patient: bool | None = None,
    ) -> None:
        # A dataclass with slots is made twice, the second time without these.
        declared = {"script": script, "slots": slots, "label": label, "patient": patient}
        for name, value in declared.items():
            if value is not None:
                setattr(cls, name, value)

    def parse(self, raw: Any, decode: Any) -> Any:
        """The raw reply as a value. `decode` reads a job as the model stores it (see `engine.wire.operations.claims.Decode`).

        Raises TypeError, ValueError, IndexError, KeyError or AttributeError for a reply outside the script's contract.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reply")
