"""Collectives of a function that JAX has compiled, as a custom call of XLA, which runs without Python.

The handlers are in python/src/xla/jax_collective.cc. A call blocks until the other ranks have made it, so calls are
ordered among themselves, as jax's own ordered callbacks are: by an effect, for which JAX threads a token through the
program, its branches and loops, and from one program to the next.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common.native import core

__all__ = ["collective", "forget_failed", "problem", "wait_for_programs", "was_used"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

_TARGET = "horovod_jax_collective"
_SHAPE_KEEPING = (core.OP_ALLREDUCE, core.OP_BROADCAST)


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


def _refuse_vmap(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("hvd: collectives cannot be called under jax.vmap; call them on the whole array")


def _row_major(avals: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(reversed(range(aval.ndim))) for aval in avals]


def _lower(effect: Any, token: Any, ctx: Any, *operands: Any, attributes: tuple[tuple[str, Any], ...], **_: Any) -> Any:
    """The call in a program: results in place of operands that nobody else needs, and the token behind them."""
    named = dict(attributes)
    rule = jax.ffi.ffi_lowering(
        _TARGET,
        has_side_effect=True,
        operand_layouts=[*_row_major(ctx.avals_in), ()],
        result_layouts=[*_row_major(ctx.avals_out), ()],
        operand_output_aliases={i: i for i in range(len(operands))} if named["kind"] in _SHAPE_KEEPING else None,
    )
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token])
    *results, after = rule(inner, *operands, ctx.tokens_in.get(effect), **named)
    tokens = importlib.import_module("jax.interpreters.mlir").TokenSet({effect: after})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(tokens))
    return results


@functools.cache
def _primitive() -> Any:
    """The call as JAX traces it. Registers all of it, once.

    ImportError, AttributeError or TypeError if this JAX lacks a part.
    """
    effect, token = _declare_order()
    primitive = importlib.import_module("jax.extend.core").Primitive("horovod_collective")
    primitive.multiple_results = True

    def results(*avals: Any, attributes: Any, shapes: tuple[tuple[int, ...], ...]) -> Any:
        return [aval.update(shape=shape) for aval, shape in zip(avals, shapes, strict=True)], {effect}

    primitive.def_effectful_abstract_eval(results)
    # Where JAX evaluates a traced function one operation after another, as jax.checkpoint does, it is a program itself.
    primitive.def_impl(jax.jit(primitive.bind, static_argnames=("attributes", "shapes")))
    lower = functools.partial(_lower, effect, token)
    importlib.import_module("jax.interpreters.mlir").register_lowering(primitive, lower, cacheable=False)
    importlib.import_module("jax.interpreters.batching").primitive_batchers[primitive] = _refuse_vmap
    for platform, handler in core.jax_collective_handlers().items():
        jax.ffi.register_ffi_target(_TARGET, handler, platform=platform)
    return primitive


@functools.cache
def problem() -> str | None:
    """Why a compiled function cannot make the call in this process; None when it can. Initialises JAX's devices."""
    backend = importlib.import_module("jax.extend.backend").get_backend()
    if backend.platform != "cpu" and "cuda" not in backend.platform_version.lower():
        return f"JAX computes on {backend.platform}, and the call is for CPUs and GPUs of CUDA"
    try:
        _primitive()
    except (ImportError, AttributeError, TypeError) as error:  # not there, or with other parameters
        return f"JAX {jax.__version__} lacks a part of it ({error})"
    return None


def was_used() -> bool:
    """Whether a function with such a call was traced in this process."""
    return _primitive.cache_info().currsize > 0


def wait_for_programs() -> None:
    """Waits for the programs with collectives that this thread has started. Raises JAX's error of one that failed."""
    if was_used():
        _tokens().block_until_ready()


def forget_failed() -> None:
    """Lets programs of this thread run again after one has failed, behind whose token JAX would order them all."""
    if was_used():
        _tokens().clear()


def collective(
    kind: int,
    arrays: Sequence[Any],
    names: Sequence[str],
    reduction: tuple[int, float, float, int],
    groups: Sequence[int] = (),
    root_rank: int = -1,
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> list[Any]:
    """The results for the arrays of a traced function: each alone, or `groups[0]` together, and so on.

    Requires: problem() is None, and types that the core has. `kind`: core.OP_...; `reduction`: op, prescale, postscale,
    id of the set; `shapes`: of the results, else those of the arrays. ValueError for a name of several lines.
    """
    broken = [name for name in names if "\n" in name]
    if broken:
        raise ValueError(f"hvd: expected a name without line breaks, got {broken[0]!r}")
    op, prescale, postscale, process_set_id = reduction
    attributes = {
        "kind": np.int32(kind),
        "names": "\n".join(names),
        "groups": ",".join(map(str, groups)),
        "root_rank": np.int32(root_rank),
        "reduce_op": np.int32(op),
        "prescale_factor": np.float64(prescale),
        "postscale_factor": np.float64(postscale),
        "process_set_id": np.int32(process_set_id),
        "session": str(core.epoch()) if core.is_initialized() else "",
    }
    made = tuple(tuple(array.shape) for array in arrays) if shapes is None else tuple(shapes)
    results: list[Any] = _primitive().bind(*arrays, attributes=tuple(attributes.items()), shapes=made)
    return results
