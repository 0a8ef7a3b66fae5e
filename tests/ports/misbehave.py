"""A port for the tests of ``conform``: it computes with the reference, and misbehaves as its argument says."""

import json
import os
import sys
import time


def answer(request):
    if request["op"] == "hello":
        return {"out": {"arrays": os.environ.get("ARRAYS", "data")}}
    from npminimind.oracle.arrays import decode, encode  # not earlier: most tests need none of it
    from npminimind.oracle.signatures import SIGNATURES, reference

    if request["op"] not in SIGNATURES:
        return {"unsupported": True}
    try:
        out = reference(request["op"], decode(request["args"]))
    except (ValueError, TypeError) as error:
        return {"error": str(error)}
    return {"out": encode(out if SIGNATURES[request["op"]].results else out["out"], os.environ.get("ARRAYS", "data"))}


def main(how):
    if how == "banner":
        print("Loading my model ...")
    if how == "dead":
        sys.exit("no model found")
    for line in sys.stdin:
        request = json.loads(line)
        asked = request["op"] != "hello"
        if how == "noise" and request["op"] == "silu":
            print("debug: computing", request["op"])
        if how == "hang" and asked:
            time.sleep(60)
        if how == "die" and asked:
            print("out of registers", file=sys.stderr)
            sys.exit(3)
        if how == "die_on_four" and '"shape": [4]' in line:
            os.abort()
        if how == "unsupported" and asked:
            reply = {"unsupported": True}
        elif how == "wrong_id":
            reply = answer(request) | {"id": 999}
        elif how == "ragged" and asked:
            reply = {"out": {"shape": [2], "dtype": "float64", "data": [1]}}
        else:
            reply = answer(request)
        print(json.dumps({"id": request["id"]} | reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "well")
