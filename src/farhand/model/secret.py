"""A value that shows itself only to who asks for it by name."""

from typing import Any, Final, Generic, NoReturn, Self, TypeVar, cast

MASK: Final = "********"

T_co = TypeVar("T_co", covariant=True)


class Secret(Generic[T_co]):
    """Holds a secret; `reveal()` is the only way to it.

    repr, str, every format, a log line, a dataclass around it and a traceback that prints local
    names show a mask of fixed length. It is no dataclass and no str, so that json and msgspec
    refuse to encode it; it cannot be pickled, and copies are the object itself.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def reveal(self) -> T_co:
        """The secret in clear."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str, /) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine: object = self._value
        theirs: object = cast("Secret[object]", other).reveal()
        return mine == theirs

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any], /) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; reveal() it where it has to go out in clear")
