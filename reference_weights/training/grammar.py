"""A tiny sentence language, read in both directions: it writes text, and it recognises text.

``[a|b|c]`` is a choice, ``{hero}`` a slot, ``{hero.he}`` another form of the thing in that slot.

>>> import random
>>> slots = {"hero": {"word": "Mia", "he": "she"}, "obj": {"word": "kite"}}
>>> write("{hero} said that {hero.he} had a {obj}.", slots, random.Random(0))
'Mia said that she had a kite.'
>>> tables = {"hero": [slots["hero"], {"word": "Tom", "he": "he"}], "obj": [slots["obj"]]}
>>> pattern = compile_pattern("{hero} [said|knew] that {hero.he} had a {obj}.", tables)
>>> recognise(pattern, "Tom knew that he had a kite.", tables)["hero"]["word"]
'Tom'
>>> recognise(pattern, "Tom knew that she had a kite.", tables) is None
True
"""

import re

_PIECE = re.compile(r"\{(\w+)(?:\.(\w+))?\}|([\[\]|])|([^\[\]|{}]+)")


def parse(template):
    """Template -> list of nodes: ``str``, ``("slot", name, key)`` or ``("choice", [nodes, ...])``."""
    stack = [[[]]]  # levels of alternatives of nodes
    for match in _PIECE.finditer(template):
        slot, key, mark, text = match.groups()
        if slot:
            stack[-1][-1].append(("slot", slot, key or "word"))
        elif text:
            stack[-1][-1].append(text)
        elif mark == "[":
            stack.append([[]])
        elif mark == "|":
            stack[-1].append([])
        else:
            alternatives = stack.pop()
            stack[-1][-1].append(("choice", alternatives))
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError(f"unbalanced brackets in {template!r}")
    return stack[0][0]


def pick(rng, items):
    """One of the items; uses only ``rng.random()``, whose sequence Python keeps the same for a seed for ever."""
    return items[int(rng.random() * len(items))]


def weighted(rng, shares):
    """One of the keys of ``shares`` (key -> share), each as often as its share says."""
    x = rng.random() * sum(shares.values())
    for key, share in shares.items():
        x -= share
        if x < 0:
            return key
    return key


_parsed = {}


def write(template, slots, rng):
    """Text of a template: choices drawn with ``rng``, slots filled from the entries in ``slots``."""
    if template not in _parsed:
        _parsed[template] = parse(template)

    def render(nodes):
        out = []
        for node in nodes:
            if isinstance(node, str):
                out.append(node)
            elif node[0] == "slot":
                out.append(slots[node[1]][node[2]])
            else:
                out.append(render(pick(rng, node[1])))
        return "".join(out)

    return render(_parsed[template])


def compile_pattern(template, tables):
    """A regular expression that matches what ``write`` can write with entries of ``tables`` (slot -> list of entries).

    The first time that a slot's form appears it is a named group; later appearances must repeat it.
    """

    def render(nodes):
        out = []
        for node in nodes:
            if isinstance(node, str):
                out.append(re.escape(node))
            elif node[0] == "slot":
                _, slot, key = node
                values = sorted({e[key] for e in tables[slot] if key in e}, key=lambda v: (-len(v), v))
                # One numbered group an appearance; recognise() checks that they agree.
                groups.append((slot, key))
                out.append("(" + "|".join(map(re.escape, values)) + ")")
            else:
                out.append("(?:" + "|".join(render(alternative) for alternative in node[1]) + ")")
        return "".join(out)

    groups = []
    return re.compile(render(parse(template))), groups


def recognise(pattern, text, tables):
    """Slots (slot -> entry) if the whole text can have been written by the pattern, else None."""
    regex, groups = pattern
    match = regex.fullmatch(text)
    if match is None:
        return None
    candidates = {}
    for (slot, key), value in zip(groups, match.groups()):
        if value is None:  # in a branch not taken
            continue
        fitting = [e for e in candidates.get(slot, tables[slot]) if e.get(key) == value]
        if not fitting:
            return None
        candidates[slot] = fitting
    return {slot: entries[0] for slot, entries in candidates.items()}
