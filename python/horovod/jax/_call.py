"""Collectives of a function that JAX has compiled, as a custom call of XLA, which runs without Python.

The handlers are in python/src/xla/jax_collective.cc. A call blocks until the other ranks have made it, so calls are
ordered among themselves, as jax's own ordered callbacks are: by an effect, for which JAX threads a token through the
program, its branches and loops, and from one program to the next.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from horovod._common.native import core

__all__ = ["effect", "forget_failed", "lower", "problem", "wait_for_programs", "was_used"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

_TARGET = "horovod_jax_collective"


def _tokens() -> Any:
    """What the next program of this thread is ordered behind."""
    return importlib.import_module("jax._src.dispatch").runtime_tokens


def _declare_order() -> tuple[Any, Any]:
    """The effect that orders calls, and the type of its tokens. ImportError or AttributeError where JAX has neither.

    They are JAX's private names: it has no public ones for what io_callback(ordered=True) does.
    """
    effects: Any = importlib.import_module("jax._src.effects")
    _ = _tokens().clear  # forget_failed() needs it
    token = importlib.import_module("jax._src.core").abstract_token
    effect_type: Any = type("CollectiveEffect", (effects.Effect,), {"__str__": lambda _: "Horovod"})
    for allowed in (
        effects.ordered_effects,
        effects.lowerable_effects,
        effects.control_flow_allowed_effects,
        effects.custom_derivatives_allowed_effects,
        effects.remat_allowed_effects,
    ):
        allowed.add_type(effect_type)
    return effect_type(), token


def _row_major(avals: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(reversed(range(aval.ndim))) for aval in avals]


@functools.cache
def _declared() -> tuple[Any, Any]:
    """The effect and the type of its tokens. Registers all of it, once.

    ImportError, AttributeError or TypeError if this JAX lacks a part.
    """
    effect, token = _declare_order()
    for platform, handler in core.jax_collective_handlers().items():
        jax.ffi.register_ffi_target(_TARGET, handler, platform=platform)
    return effect, token


def effect() -> Any:
    """What a traced function with such calls is said to do. Requires: problem() is None."""
    return _declared()[0]


def lower(ctx: Any, operands: Sequence[Any], attributes: Mapping[str, Any], keeps_shape: bool) -> list[Any]:
    """The call in a program: a result for each operand, in place of those that nobody else needs where shapes stay.

    `ctx`: of a lowering rule, whose first results these are. Requires: problem() is None.
    """
    effect, token = _declared()
    avals_out = ctx.avals_out[: len(operands)]
    rule = jax.ffi.ffi_lowering(
        _TARGET,
        has_side_effect=True,
        operand_layouts=[*_row_major(ctx.avals_in), ()],
        result_layouts=[*_row_major(avals_out), ()],
        operand_output_aliases={i: i for i in range(len(operands))} if keeps_shape else None,
    )
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*avals_out, token])
    results: list[Any]
    *results, after = rule(inner, *operands, ctx.tokens_in.get(effect), **attributes)
    tokens = importlib.import_module("jax.interpreters.mlir").TokenSet({effect: after})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(tokens))
    return results


@functools.cache
def problem() -> str | None:
    """Why a compiled function cannot make the call in this process; None when it can. Initialises JAX's devices."""
    backend = importlib.import_module("jax.extend.backend").get_backend()
    if backend.platform != "cpu" and "cuda" not in backend.platform_version.lower():
        return f"JAX computes on {backend.platform}, and the call is for CPUs and GPUs of CUDA"
    try:
        _declared()
    except (ImportError, AttributeError, TypeError) as error:  # not there, or with other parameters
        return f"JAX {jax.__version__} lacks a part of it ({error})"
    return None


def was_used() -> bool:
    """Whether a function with such a call was traced in this process."""
    return _declared.cache_info().currsize > 0


def wait_for_programs() -> None:
    """Waits for the programs with collectives that this thread has started. Raises JAX's error of one that failed."""
    if was_used():
        _tokens().block_until_ready()


def forget_failed() -> None:
    """Lets programs of this thread run again after one has failed, behind whose token JAX would order them all."""
    if was_used():
        _tokens().clear()
