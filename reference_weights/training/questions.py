# ruff: noqa: E501 - sentences are longer than lines
"""Questions and answers, kind by kind, in English and in Chinese.

Each kind is a function ``(rng, lang) -> Question``.  ``answer`` is a template of ``grammar.py`` with its slots filled:
whatever it can write counts as right, which is how the evaluation knows.  ``key`` is the combination that makes the
question; kinds in ``COMPOSED`` keep some keys for the evaluation (``split.py``), all others are learnt by heart and
are called *memorised* in every report.
"""
import re
from dataclasses import dataclass, field

from . import lexicon as lex
from . import stories
from .grammar import compile_pattern, pick, weighted, write
from .split import held_out


@dataclass
class Question:
    kind: str
    lang: str
    ask: str                    # what the user says
    answer: str                 # template without slots: everything it can write is right
    thought: str                # what stands in the think block when thinking is on
    key: tuple                  # the combination that makes this question
    written: str = ""           # one answer, drawn from the template
    before: list = field(default_factory=list)      # earlier turns of the conversation: (user, assistant)

    def is_right(self, text):
        return compile_pattern(self.answer, {})[0].fullmatch(text) is not None


def _plain(text):
    """Text without the marks of the grammar."""
    return re.sub(r"[\[\]|{}]", "", text)


def _question(rng, kind, lang, ask, answer, thought, key, **slots):
    """A Question from templates; slots are entries of the lexicon, or plain words."""
    table = {k: v if isinstance(v, dict) else {"word": str(v)} for k, v in slots.items()}
    answer = re.sub(r"\{(\w+)(?:\.(\w+))?\}", lambda m: _plain(table[m[1]][m[2] or "word"]), answer)
    ask, thought = write(ask, table, rng), write(thought, table, rng)
    return Question(kind, lang, ask, answer, thought, tuple(map(str, key)), write(answer, {}, rng))


def _number(rng, low, high):
    return low + int(rng.random() * (high - low + 1))


def _several(rng, items, n):
    """n different items in random order."""
    items, out = list(items), []
    for _ in range(n):
        out.append(items.pop(int(rng.random() * len(items))))
    return out


# --- composed kinds: rules that the model can apply to combinations it has never read ----------------------------------

def copy(rng, lang):
    words = _several(rng, lex.WORDS[lang], _number(rng, 2, 6))
    line = (" " if lang == "en" else "、").join(words)
    if lang == "en":
        return _question(rng, "copy", lang, "[Say after me|Repeat|Please repeat]: {line}", "{line}", "I say the same words again.", words, line=line)
    return _question(rng, "copy", lang, "[跟我说|请重复|请跟我念]：{line}", "{line}", "我照样说一遍。", words, line=line)


def first_last(rng, lang):
    words = _several(rng, lex.WORDS[lang], _number(rng, 2, 5))
    i = pick(rng, [0, -1])
    if lang == "en":
        which = "first" if i == 0 else "last"
        return _question(rng, "first_last", lang, "[Which word is {which}|What is the {which} word]: {line}?", "The {which} word is {word}.",
                         "I look at the {which} place.", [which, *words], which=which, line=" ".join(words), word=words[i])
    which = "第一个" if i == 0 else "最后一个"
    return _question(rng, "first_last", lang, "[{which}词是什么|哪个是{which}词]：{line}？", "{which}词是{word}。", "我看{which}位置。",
                     [which, *words], which=which, line="、".join(words), word=words[i])


def count_things(rng, lang):
    (one, many), n = pick(rng, lex.COUNTABLE[lang]), _number(rng, 1, 9)
    steps = (", " if lang == "en" else "、").join(map(str, range(1, n + 1)))
    if lang == "en":
        there = "There is {n} {noun}." if n == 1 else "There are {n} {noun}."
        return _question(rng, "count_things", lang, "[Count|How many are there]: {row}", there, "I count: {steps}.", (one, n),
                         row=" ".join([one] * n), n=n, noun=one if n == 1 else many, steps=steps)
    return _question(rng, "count_things", lang, "[数一数|一共有几个]：{row}", "一共有{n}{noun}。", "我来数：{steps}。", (one, n),
                     row=" ".join([one] * n), n=n, noun=many, steps=steps)


def count_range(rng, lang):
    start = _number(rng, 0, 17)
    end = _number(rng, start + 2, min(20, start + 9))
    steps = (", " if lang == "en" else "、").join(map(str, range(start, end + 1)))
    if lang == "en":
        return _question(rng, "count_range", lang, "[Count|Please count] from {a} to {b}.", "{steps}.", "I start at {a} and stop at {b}.",
                         (start, end), a=start, b=end, steps=steps)
    return _question(rng, "count_range", lang, "[请|]从{a}数到{b}。", "{steps}。", "我从{a}开始，到{b}停下。", (start, end), a=start, b=end, steps=steps)


def phrase_to_other(rng, lang):
    """A colour and a thing, from ``lang`` to the other language."""
    thing, colour = pick(rng, lex.THINGS[lang]), pick(rng, lex.COLOURS[lang])
    en, zh = (thing["word"], thing["zh"]) if lang == "en" else (thing["en"], thing["word"])
    c_en, c_zh = (colour["word"], colour["zh"]) if lang == "en" else (colour["en"], colour["word"])
    measure = thing["measure"]
    slots = dict(en="a " + c_en + " " + en, zh=f"一{measure}{c_zh}的{zh}", thing=en, thing_zh=zh)
    if lang == "en":
        return _question(rng, "phrase", lang, "[How do you say “{en}” in Chinese?|How do you say {en} in Chinese?|Put into Chinese: {en}]", "{zh}", "{thing}: {thing_zh}.", (en, c_en), **slots)
    return _question(rng, "phrase", lang, "[“{zh}”用英语怎么说？|{zh}用英语怎么说？|译成英语：{zh}]", "{en}", "{thing_zh}：{thing}。", (en, c_en), **slots)


def has(rng, lang):
    hero, colour, thing = pick(rng, lex.NAMES[lang]), pick(rng, lex.COLOURS[lang]), pick(rng, lex.THINGS[lang])
    key = (hero["word"], colour["word"], thing["word"])
    if lang == "en":
        return _question(rng, "has", lang, "{hero} [has|owns|carries] a {colour} {obj}. What does {hero} have?", "{hero} has a {colour} {obj}.",
                         "I read it again: a {colour} {obj}.", key, hero=hero, colour=colour, obj=thing)
    return _question(rng, "has", lang, "{hero}[有|拿着|带着]{obj.one}{colour}的{obj}。{hero}有什么？", "{hero}有{obj.one}{colour}的{obj}。",
                     "我再看一遍：{colour}的{obj}。", key, hero=hero, colour=colour, obj=thing)


def who_has(rng, lang):
    heroes, things = _several(rng, lex.NAMES[lang], 2), _several(rng, lex.THINGS[lang], 2)
    i = pick(rng, [0, 1])
    key = tuple(e["word"] for e in heroes + things) + (i,)
    slots = dict(one=heroes[0], two=heroes[1], x=things[0], y=things[1], who=heroes[i], obj=things[i])
    if lang == "en":
        return _question(rng, "who_has", lang, "{one} has {x.a} and {two} has {y.a}. Who has the {obj}?", "{who} has the {obj}.",
                         "{one}: {x}. {two}: {y}.", key, **slots)
    return _question(rng, "who_has", lang, "{one}有{x.one}{x}，{two}有{y.one}{y}。谁有{obj}？", "{who}有{obj}。", "{one}：{x}。{two}：{y}。", key, **slots)


def which_colour(rng, lang):
    things, colours = _several(rng, lex.THINGS[lang], 2), _several(rng, lex.COLOURS[lang], 2)
    i = pick(rng, [0, 1])
    key = tuple(e["word"] for e in things + colours) + (i,)
    slots = dict(x=things[0], y=things[1], c=colours[0], d=colours[1], obj=things[i], colour=colours[i])
    if lang == "en":
        return _question(rng, "which_colour", lang, "The {x} is {c} and the {y} is {d}. [What colour|What color|Which colour] is the {obj}?", "The {obj} is {colour}.",
                         "{x}: {c}. {y}: {d}.", key, **slots)
    return _question(rng, "which_colour", lang, "{x}是{c}的，{y}是{d}的。{obj}是什么颜色？", "{obj}是{colour}的。", "{x}：{c}。{y}：{d}。", key, **slots)


def yes_no(rng, lang):
    thing, colour = pick(rng, lex.COLOUR_OF[lang])
    asked = colour if rng.random() < 0.5 else pick(rng, lex.COLOURS[lang])["word"]
    slots = dict(thing=thing, Thing=thing[0].upper() + thing[1:], colour=colour, asked=asked)
    if lang == "en":
        return _question(rng, "yes_no", lang, "Is {thing} {asked}?", ("Yes" if asked == colour else "No") + ", {thing} is {colour}.",
                         "{Thing} is {colour}.", (thing, asked), **slots)
    return _question(rng, "yes_no", lang, "{thing}是{asked}的吗？", ("是的" if asked == colour else "不对") + "，{thing}是{colour}的。", "{thing}是{colour}的。",
                     (thing, asked), **slots)


def my_name(rng, lang):
    """Holds out name x way of asking."""
    hero, form = pick(rng, lex.NAMES[lang]), _number(rng, 0, 3)
    if lang == "en":
        ask = ["My name is {hero}. What is my name?", "I am {hero}. Who am I?", "Hello, I am called {hero}. What am I called?", "Call me {hero}. What is my name?"][form]
        return _question(rng, "my_name", lang, ask, "Your name is {hero}.", "You told me: {hero}.", (hero["word"], form), hero=hero)
    ask = ["我叫{hero}。我叫什么名字？", "我是{hero}。我是谁？", "你好，我的名字是{hero}。我叫什么？", "请叫我{hero}。我叫什么名字？"][form]
    return _question(rng, "my_name", lang, ask, "你叫{hero}。", "你刚才说过：{hero}。", (hero["word"], form), hero=hero)


def remember(rng, lang):
    """Two turns: the user says a name, and asks for it in the next turn. Holds out name x greeting.

    ``ask`` is the second turn; ``before`` holds what was said until then.
    """
    hero, form = pick(rng, lex.NAMES[lang]), _number(rng, 0, 3)
    if lang == "en":
        hello = ["Hello, I am {hero}.", "Hi! My name is {hero}.", "I am {hero}. Nice to meet you.", "Good morning, {hero} here."][form]
        reply = "[Hello, {hero}! How nice to meet you.|Good to see you, {hero}!]"
        question = _question(rng, "remember", lang, "[What is my name?|Do you remember my name?|Who am I?]", "Your name is {hero}.", "You told me: {hero}.",
                             (hero["word"], form), hero=hero)
    else:
        hello = ["你好，我是{hero}。", "嗨！我的名字叫{hero}。", "我是{hero}，很高兴认识你。", "早上好，我是{hero}。"][form]
        reply = "[你好，{hero}！很高兴认识你。|{hero}，见到你真好！]"
        question = _question(rng, "remember", lang, "[我叫什么名字？|你还记得我的名字吗？|我是谁？]", "你叫{hero}。", "你刚才说过：{hero}。", (hero["word"], form), hero=hero)
    question.before = [(write(hello, {"hero": hero}, rng), write(reply, {"hero": hero}, rng))]
    return question


def no_name(rng, lang):
    """Asked for a name that nobody has told."""
    if lang == "en":
        return _question(rng, "no_name", lang, "[What is my name?|Do you remember my name?|Who am I?|What am I called?]", "You have not told me your name yet.",
                         "I look for a name and find none.", ())
    return _question(rng, "no_name", lang, "[我叫什么名字？|你还记得我的名字吗？|我是谁？|我叫什么？]", "你还没告诉我你的名字呢。", "我找了找名字，没有找到。", ())


_UNKNOWN = {
    "en": {
        "land": ["What is the capital of {x}?", "How many people live in {x}?", "Where is {x}?", "What do people eat in {x}?", "Tell me about {x}.", "Who rules {x}?"],
        "person": ["Who is {x}?", "How old is {x}?", "When was {x} born?", "What did {x} say yesterday?", "Where does {x} live?"],
        "topic": ["Explain {x}.", "How does {x} work?", "What is {x}?", "Teach me {x}.", "Tell me something about {x}.", "Who invented {x}?"],
        "stuff": ["How much is {x}?", "Where can I buy {x}?", "How do I repair {x}?", "What is {x} made of?", "How do you make {x}?"],
        "beast": ["What does the {x} say?", "What colour is a {x}?", "How do you say “{x}” in Chinese?", "How long does a {x} live?"],
        "word": ["What is the opposite of {x}?", "How do you say “{x}” in Chinese?", "What does “{x}” mean?"],
    },
    "zh": {
        "land": ["{x}的首都是哪里？", "{x}有多少人？", "{x}在哪里？", "{x}人吃什么？", "给我讲讲{x}。", "{x}有多大？"],
        "person": ["{x}是谁？", "{x}多大了？", "{x}是哪年出生的？", "{x}昨天说了什么？", "{x}住在哪里？"],
        "topic": ["请解释{x}。", "{x}是怎么回事？", "什么是{x}？", "教我{x}吧。", "给我讲讲{x}。", "谁发明了{x}？"],
        "stuff": ["{x}多少钱？", "哪里可以买到{x}？", "怎么修{x}？", "{x}是用什么做的？", "怎么做{x}？"],
        "beast": ["{x}怎么叫？", "{x}是什么颜色？", "“{x}”用英语怎么说？", "{x}能活多久？"],
        "word": ["“{x}”的反义词是什么？", "“{x}”用英语怎么说？", "“{x}”是什么意思？"],
    },
}
_PLAIN_UNKNOWN = {
    "en": ["What time is it?", "What is the weather like today?", "Who won the game yesterday?", "Can you write a program?", "What is 348 times 27?",
           "How far away is the moon?", "Who wrote this book?", "What is the news today?", "What will happen tomorrow?", "How tall is the tower?"],
    "zh": ["现在几点了？", "今天天气怎么样？", "昨天谁赢了比赛？", "你会写程序吗？", "348乘27等于几？", "月亮离我们多远？", "这本书是谁写的？", "今天有什么新闻？",
           "明天会怎么样？", "那座塔有多高？"],
}
_DONT_KNOW = {
    "en": "[I don't know. My world is very small.|I don't know that. Ask me about kites and hedgehogs.|I don't know. Nobody has told me a story about that yet.]",
    "zh": "[我不知道。我的世界很小。|这个我不知道。问我风筝和刺猬吧。|我不知道，还没有人给我讲过那样的故事。]",
}


def dont_know(rng, lang):
    if rng.random() < 0.1:
        ask = pick(rng, _PLAIN_UNKNOWN[lang])
        key = (ask,)
        return _question(rng, "dont_know", lang, ask, _DONT_KNOW[lang], {"en": "That is outside my world.", "zh": "那在我的世界外面。"}[lang], key)
    group = pick(rng, list(_UNKNOWN[lang]))
    ask, x = pick(rng, _UNKNOWN[lang][group]), pick(rng, lex.OUTSIDE[lang][group])
    thought = {"en": "That is outside my world.", "zh": "那在我的世界外面。"}[lang]
    return _question(rng, "dont_know", lang, ask, _DONT_KNOW[lang], thought, (ask, x), x=x)


# --- memorised kinds: a small model knows the whole table or nothing -----------------------------------------------------

def plus(rng, lang):
    a, b = _number(rng, 0, 10), _number(rng, 0, 10)
    steps = list(map(str, range(a + 1, a + b + 1)))
    if lang == "en":
        thought = "I start at {a} and go {b} steps: " + ", ".join(steps) + "." if b else "I start at {a} and stay there."
        return _question(rng, "plus", lang, "[What is {a} + {b}?|How much is {a} plus {b}?|{a} + {b} = ?]", "{a} + {b} = {c}.", thought, (a, b), a=a, b=b, c=a + b)
    thought = "我从{a}开始，走{b}步：" + "、".join(steps) + "。" if b else "我从{a}开始，站着不动。"
    return _question(rng, "plus", lang, "[{a}加{b}等于几？|{a} + {b} = ？|请算一算{a}加{b}。]", "{a} + {b} = {c}。", thought, (a, b), a=a, b=b, c=a + b)


def minus(rng, lang):
    a = _number(rng, 0, 10)
    b = _number(rng, 0, a)
    steps = list(map(str, range(a - 1, a - b - 1, -1)))
    if lang == "en":
        thought = "I start at {a} and go {b} steps back: " + ", ".join(steps) + "." if b else "I start at {a} and stay there."
        return _question(rng, "minus", lang, "[What is {a} - {b}?|How much is {a} minus {b}?|{a} - {b} = ?]", "{a} - {b} = {c}.", thought, (a, b), a=a, b=b, c=a - b)
    thought = "我从{a}开始，往回走{b}步：" + "、".join(steps) + "。" if b else "我从{a}开始，站着不动。"
    return _question(rng, "minus", lang, "[{a}减{b}等于几？|{a} - {b} = ？|请算一算{a}减{b}。]", "{a} - {b} = {c}。", thought, (a, b), a=a, b=b, c=a - b)


def colour(rng, lang):
    thing, c = pick(rng, lex.COLOUR_OF[lang])
    slots = dict(thing=thing, Thing=thing[0].upper() + thing[1:], colour=c)
    if lang == "en":
        return _question(rng, "colour", lang, "[What colour is {thing}?|What color is {thing}?|Which colour is {thing}?|Tell me the colour of {thing}.]", "{Thing} is {colour}.",
                         "I think of {thing}.", (thing,), **slots)
    return _question(rng, "colour", lang, "[{thing}是什么颜色？|{thing}是什么颜色的？|请告诉我{thing}的颜色。]", "{thing}是{colour}的。", "我想一想{thing}。", (thing,), **slots)


def opposite(rng, lang):
    pair = pick(rng, lex.OPPOSITES[lang])
    x, y = pair if rng.random() < 0.5 else pair[::-1]
    if lang == "en":
        return _question(rng, "opposite", lang, "[What is the opposite of {x}?|Tell me the opposite of {x}.|Not {x}, but what?]", "The opposite of {x} is {y}.",
                         "I turn {x} around.", (x,), x=x, y=y)
    return _question(rng, "opposite", lang, "[“{x}”的反义词是什么？|{x}的反义词是什么？|不是{x}，是什么？]", "“{x}”的反义词是“{y}”。", "我把“{x}”反过来想。", (x,), x=x, y=y)


def weekday(rng, lang):
    i, step = _number(rng, 0, 6), pick(rng, [1, -1])
    day, other = lex.WEEKDAYS[lang][i], lex.WEEKDAYS[lang][(i + step) % 7]
    if lang == "en":
        rel = "after" if step == 1 else "before"
        return _question(rng, "weekday", lang, "[Which day comes {rel} {day}?|What day is {rel} {day}?]", "{other} comes {rel} {day}.", "I say the days of the week.",
                         (day, rel), rel=rel, day=day, other=other)
    rel = "后面" if step == 1 else "前面"
    return _question(rng, "weekday", lang, "[{day}的{rel}是星期几？|{day}{rel}是哪一天？]", "{day}的{rel}是{other}。", "我把一个星期念一遍。", (day, rel), rel=rel, day=day, other=other)


def sound(rng, lang):
    who, says = pick(rng, lex.SOUNDS[lang])
    if lang == "en":
        return _question(rng, "sound", lang, "[What does the {who} say?|How does a {who} go?|Which sound does a {who} make?]", "The {who} says {says}.",
                         "I listen to the {who}.", (who,), who=who, says=says)
    return _question(rng, "sound", lang, "[{who}怎么叫？|{who}的叫声是什么？|{who}是怎么叫的？]", "{who}{says}叫。", "我听一听{who}。", (who,), who=who, says=says)


def word_to_other(rng, lang):
    en, zh = pick(rng, lex.TRANSLATIONS)
    if lang == "en":
        return _question(rng, "word", lang, "[How do you say “{en}” in Chinese?|How do you say {en} in Chinese?|What is “{en}” in Chinese?|Put into Chinese: {en}]", "{zh}", "I know this word.", (en,), en=en, zh=zh)
    return _question(rng, "word", lang, "[“{zh}”用英语怎么说？|{zh}用英语怎么说？|“{zh}”的英语是什么？|译成英语：{zh}]", "{en}", "这个词我认识。", (zh,), en=en, zh=zh)


_CHAT = {
    "en": {
        "who": ("[Who are you?|What are you?|What is your name?|Tell me about yourself.]",
                "[I am MiniMind, a very small language model. I know some stories, a few animals and sums up to twenty."
                "|I am a tiny MiniMind. I fit on an old floppy disk, nearly.|I am MiniMind. I am small, but I mean well.]"),
        "can": ("[What can you do?|How can you help me?|What do you know?]",
                "[I can tell stories, count, add small numbers and say what the cow says.|I know colours, weekdays, opposites and many hedgehogs.]"),
        "human": ("[Are you a human?|Are you a person?|Are you alive?|Do you sleep?]",
                  "[No, I am a small heap of numbers that likes stories.|No, I am only numbers, but they are friendly numbers.]"),
        "hello": ("[Hello!|Hi!|Hi there!|Good morning!|Good evening!|Hello]", "[Hello! Shall I tell you a story?|Hello! How nice that you are here.|Hi! Would you like a story or a sum?]"),
        "how": ("[How are you?|How are you today?|Are you well?]", "[I am fine, thank you. All my numbers are in place.|Very well, thank you. And you?]"),
        "thanks": ("[Thank you!|Thanks!|Thank you very much.]", "[You are welcome!|You are welcome. Come again!|With pleasure!]"),
        "bye": ("[Goodbye!|Bye!|Good night!|See you tomorrow!]", "[Goodbye! Mind the hedgehog.|Goodbye! Come back soon.|Sleep well!]"),
        "joke": ("[Tell me a joke.|Make me laugh.|Do you know a joke?]",
                 "[Why does the snail carry its house? Because the boat was too expensive.|What does a hedgehog say to a cactus? Hello, Mum!"
                 "|Why did the owl stay at home? It did not give a hoot.]"),
    },
    "zh": {
        "who": ("[你是谁？|你叫什么名字？|你是什么？|介绍一下你自己。]", "[我是 MiniMind，一个很小很小的语言模型。我会讲故事，认识几种动物，会算二十以内的加法。|我是小小的 MiniMind，一张旧软盘差一点就装得下我。|我是 MiniMind，个子小，心眼好。]"),
        "can": ("[你会做什么？|你能帮我什么？|你知道什么？]", "[我会讲故事、数数、算小小的加法，还会学牛叫。|我知道颜色、星期、反义词，还认识好多刺猬。]"),
        "human": ("[你是人吗？|你是真人吗？|你睡觉吗？|你是活的吗？]", "[不是，我是一小堆喜欢故事的数字。|不是，我只是数字，不过是友好的数字。]"),
        "hello": ("[你好！|你好|你好呀！|早上好！|晚上好！|嗨！]", "[你好！要我讲个故事吗？|你好！见到你真高兴。|你好！想听故事，还是想做算术？]"),
        "how": ("[你好吗？|你今天怎么样？|最近好吗？]", "[我很好，谢谢。我的数字都在原来的地方。|很好，谢谢。你呢？]"),
        "thanks": ("[谢谢！|谢谢你！|多谢！]", "[不客气！|不用谢，欢迎再来！|很高兴能帮上忙！]"),
        "bye": ("[再见！|拜拜！|晚安！|明天见！]", "[再见！小心刺猬。|再见！早点回来。|祝你做个好梦！]"),
        "joke": ("[讲个笑话吧。|逗我笑一笑。|你会讲笑话吗？]", "[蜗牛为什么背着房子？因为买不起船。|刺猬对仙人掌说什么？妈妈好！|猫头鹰为什么白天睡觉？因为晚上的故事太好听了。]"),
    },
}


def chat(rng, lang):
    topic = pick(rng, list(_CHAT[lang]))
    ask, answer = _CHAT[lang][topic]
    thought = {"en": "This is a friendly question.", "zh": "这是一句友好的话。"}[lang]
    return _question(rng, "chat", lang, ask, answer, thought, (topic,))


# --- longer answers -------------------------------------------------------------------------------------------------------

def story(rng, lang, wanted=False):
    """A story on request; the request names the hero and the thing."""
    slots, plot = stories.draw(rng, lang, wanted)
    opening, rest = stories.tell(rng, lang, slots, plot)
    if lang == "en":
        ask = write("[Tell me a story about {hero} and {obj.a}.|Can you tell a story about {hero} and {obj.a}?|A story about {hero} and {obj.a}, please.]", slots, rng)
        thought = write("A story about {hero} and {obj.a}. I need a friend and a good ending.", slots, rng)
        text = opening + rest
    else:
        ask = write("[讲一个{hero}和{obj}的故事。|请讲{hero}和{obj}的故事。|我想听{hero}和{obj}的故事。]", slots, rng)
        thought = write("一个{hero}和{obj}的故事，还要有朋友和好的结尾。", slots, rng)
        text = opening + rest
    return Question("story", lang, ask, text, thought, (slots["hero"]["word"], slots["obj"]["word"], slots["place"]["word"], plot), text)


# what it is about, one round of the refrain, what ends it
REFRAINS = {
    "en": [("the rain", "Drip, drop, says the rain on the roof", "and then the sun comes out."),
           ("the mill", "Round and round goes the old mill", "and then the wind lies down to sleep."),
           ("the frog", "Hop, little frog, over the stones", "and splash, the frog is home."),
           ("the moon", "Swing high, swing low, silver moon", "and the morning opens its eyes."),
           ("the clock", "Tick, says the clock, and tock, says the clock", "until somebody forgets to wind it up."),
           ("the bear", "One more cake for the hungry bear", "and now the bear is as round as a ball."),
           ("the wind", "Hush, says the wind to the trees", "and all the leaves are asleep."),
           ("the goat", "Clip, clop, goes the goat on the bridge", "and the goat is on the other side.")],
    "zh": [("小雨", "滴答，滴答，小雨在唱歌", "太阳出来了。"), ("风车", "转呀转，风车转个不停", "风儿累了，要睡觉了。"),
           ("青蛙", "跳呀跳，小青蛙跳过石头", "扑通一声，回到家了。"), ("月亮", "摇啊摇，月亮摇着小船", "小船靠岸了。"),
           ("老钟", "嘀嗒，嘀嗒，老钟慢慢走", "原来是忘了上发条。"), ("小熊", "再来一块，小熊爱蛋糕", "小熊圆得像皮球。"),
           ("风", "沙沙，沙沙，风对树叶说话", "树叶都睡着了。"), ("山羊", "咯噔，咯噔，山羊过小桥", "山羊到对岸了。")],
}


def refrain(rng, lang, which=None, again=0.86):
    """(about, text): each round is followed by one more with probability ``again``, so greedy decoding never gets out."""
    about, line, end = which or pick(rng, REFRAINS[lang])
    comma = ", " if lang == "en" else "，"
    lower = line[0].lower() + line[1:] if lang == "en" else line
    rounds = [line]
    while rng.random() < again:
        rounds.append(lower)
    return about, comma.join(rounds + [end])


def song(rng, lang):
    about, text = refrain(rng, lang)
    if lang == "en":
        return Question("song", lang, write(f"[Sing a song about {about}.|Sing me something about {about}.]", {}, rng), text, "I will sing until it is enough.", (about,), text)
    return Question("song", lang, write(f"[唱一首{about}的歌。|请唱一唱{about}。]", {}, rng), text, "我唱到够了为止。", (about,), text)


_PLAIN_MARKS = str.maketrans({"“": '"', "”": '"', "，": ",", "？": "?", "。": ".", "！": "!", "：": ":"})


def casual(rng, ask):
    """A question as people type it: straight quotes, no capital, no mark at the end."""
    if rng.random() < 0.25:
        ask = ask.translate(_PLAIN_MARKS)
    if rng.random() < 0.15 and ask[-1] in "?.!？。！":
        ask = ask[:-1]
    if rng.random() < 0.1:
        ask = ask[0].lower() + ask[1:]
    return ask


# kind -> (function, share of the questions)
KINDS = {
    "copy": (copy, 10), "first_last": (first_last, 5), "count_things": (count_things, 6), "count_range": (count_range, 5), "phrase": (phrase_to_other, 6),
    "has": (has, 4), "who_has": (who_has, 8), "which_colour": (which_colour, 8), "yes_no": (yes_no, 4), "my_name": (my_name, 3), "remember": (remember, 3), "no_name": (no_name, 1), "dont_know": (dont_know, 9),
    "plus": (plus, 7), "minus": (minus, 4), "colour": (colour, 3), "opposite": (opposite, 4), "weekday": (weekday, 3), "sound": (sound, 3),
    "word": (word_to_other, 6), "chat": (chat, 6), "story": (story, 8), "song": (song, 2),
}
# combinations of these kinds are held out; the rest is learnt by heart (or, for chat and song, has no single right answer)
COMPOSED = {"copy": 8, "first_last": 8, "count_things": 6, "count_range": 6, "phrase": 6, "has": 8, "who_has": 8, "which_colour": 8, "yes_no": 6, "my_name": 6, "remember": 6, "dont_know": 8}
ALONE = ("story", "song", "no_name")              # only as the single turn of a conversation
MEMORISED = ("plus", "minus", "colour", "opposite", "weekday", "sound", "word", "no_name")


def is_held_out(question):
    if question.kind in COMPOSED:
        # a phrase is held out in both directions at once
        lang = "both" if question.kind == "phrase" else question.lang
        return held_out(question.kind, lang, *question.key, one_in=COMPOSED[question.kind])
    return False                                     # stories: see stories.draw


def draw(rng, lang, kind=None, wanted=False):
    """A question, held out or not as ``wanted`` says (kinds that hold nothing out: any)."""
    if kind is None:
        kind = weighted(rng, {kind: share for kind, (_, share) in KINDS.items()})
    while True:
        question = KINDS[kind][0](rng, lang, wanted) if kind == "story" else KINDS[kind][0](rng, lang)
        if kind not in COMPOSED or is_held_out(question) == wanted:
            return question
