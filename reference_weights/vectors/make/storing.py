"""From a declared case to a stored one: the truth, its measured floors, margins, and what mistakes answer."""

import numpy as np
from margins import margins
from model_truth import NEED_MODEL, TRUTH, model_of
from models import half
from steps import steps

from npminimind.oracle.arrays import encode
from npminimind.oracle.floors import float32_floor, measured_floor
from npminimind.oracle.judging import distance, judge
from npminimind.oracle.mistakes import MISTAKES, loop, sampling
from npminimind.oracle.naming import answer_of, wrong_functions
from npminimind.oracle.signatures import SIGNATURES, cast, reference


def stored(declared, suite):
    """A case as plain values, ready for JSON."""
    name = f"{suite.name}.{declared.situation}"
    case = {"id": declared.id, "name": name, "comment": declared.comment, "result": declared.result}
    case["args"] = encode(declared.args, "hex")
    if declared.result == "invalid":
        check_refused(suite.operator, declared)
        return case
    truth = truth_of(suite.operator, declared.args)
    case["expected"] = encode(truth, "hex")
    if declared.alternatives:
        case["alternatives"] = encode(declared.alternatives, "hex")
    if declared.may_refuse:
        case["may_refuse"] = True
    if declared.free:
        case["free"] = encode(declared.free)
    case["floor"] = floors(suite.operator, declared.args, truth)
    case["margin"] = margins(suite.operator, declared.args)
    case["steps"] = steps(suite.operator, declared.args, truth)
    case["wrong"] = wrong_answers(suite.operator, declared, truth, case["floor"].get("float32"))
    case["flags"] = list(case["wrong"])
    return {key: value for key, value in case.items() if value not in ({}, [])}


def truth_of(operator, args, model=None):
    """Results in float64: of the operator, or of what a model does."""
    with np.errstate(invalid="ignore"):  # a fully masked row is 0/0
        if operator in SIGNATURES:
            results = reference(operator, args)
        else:
            results = TRUTH[operator](args, model or model_of(operator, args))
    return {key: value if isinstance(value, str) else np.asarray(value) for key, value in results.items()}


def check_refused(operator, declared):
    try:
        answer = truth_of(operator, declared.args)
    except (ValueError, TypeError):
        return
    raise AssertionError(f"{operator} {declared.id} is declared invalid, the reference answers {answer}")


def floors(operator, args, truth):
    """How far float32, and float64 with half-precision weights, are off: measured on this very input."""
    if operator in NEED_MODEL:
        return model_floors(operator, args, truth)
    if operator not in SIGNATURES:
        return {}
    with np.errstate(invalid="ignore"):
        result = {"float32": float32_floor(operator, args, truth)}
    for dtype in ("float16", "bfloat16"):
        rounded = args | {name: cast_to(args[name], dtype) for name in SIGNATURES[operator].weights}
        if SIGNATURES[operator].weights:
            result[dtype] = measured_floor(truth, reference(operator, rounded))
    return result


def model_floors(operator, args, truth):
    result = {"float32": measured_floor(truth, TRUTH[operator](args, model_of(operator, args, np.float32)))}
    if operator in ("block", "forward"):
        for dtype in ("float16", "bfloat16"):
            rounded = half(model_of(operator, args), lambda weight, dtype=dtype: cast_to(weight, dtype))
            result[dtype] = measured_floor(truth, TRUTH[operator](args, rounded))
    return {dtype: floor for dtype, floor in result.items() if floor}


def cast_to(value, dtype):
    """Weights rounded to half precision and widened again."""
    if isinstance(value, (list, tuple)):
        return type(value)(cast_to(inner, dtype) for inner in value)
    if dtype == "float16":
        return value.astype(np.float16).astype(np.float64)
    bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(
        0xFFFF0000
    )  # to nearest, ties to even
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def wrong_answers(operator, declared, truth, floor):
    """Mistake -> fingerprint, for every known mistake that answers this input wrongly."""
    found = {}
    for mistake, answer in mistaken_answers(operator, declared.args):
        if answer is None:
            found[mistake.id] = {"raises": True}
        elif caught(answer, truth, floor, declared):
            found[mistake.id] = fingerprint(truth, answer, floor or {}, declared.free)
    return found


IN_THE_LOOP = (*sampling.MISTAKES, *loop.MISTAKES)


def mistaken_answers(operator, args):
    """(Mistake, what it answers or None where it breaks), for the mistakes that this operator can have."""
    if operator in SIGNATURES:
        for mistake, function in wrong_functions(operator):
            yield mistake, answer_of(function, operator, args)
    if operator in NEED_MODEL:
        model = model_of(operator, args)
        looping = operator in ("pipeline", "generate")
        for mistake in IN_THE_LOOP if looping else [m for m in MISTAKES if m not in IN_THE_LOOP]:
            if mistake.applies(model.config):
                try:
                    with np.errstate(all="ignore"):
                        yield mistake, truth_of(operator, args, mistake.plant(model))
                except Exception:  # a mistake may break on any input, in any way
                    continue


def caught(answer, truth, floor, declared):
    """Whether a float32 port with this mistake would be found out."""
    single = cast(answer, np.float32)
    return all(judge(right, single, floor, declared.free) for right in [truth, *declared.alternatives])


def fingerprint(truth, answer, floor, free):
    """Where a wrong answer is furthest from the truth, and what stands there."""
    for name, right in truth.items():
        wrong = answer[name]
        if wrong.shape != right.shape:
            return {"result": name, "shape": list(wrong.shape)}
        if judge({name: right}, {name: wrong}, floor, free):
            apart = np.where(free.get(name, False), 0, distance(right, wrong))
            at = np.unravel_index(np.argmax(apart), apart.shape)
            return {"result": name, "at": [int(i) for i in at], "value": encode(wrong[at].item())}
    raise AssertionError("a wrong answer that is right")
