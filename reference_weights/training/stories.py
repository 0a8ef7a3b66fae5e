# ruff: noqa: E501 - sentences are longer than lines
"""Little stories: an opening, a thing, one of fourteen events, an ending - in English and in Chinese.

A plot is a list of steps; each step is a template of ``grammar.py``.  The same text is a writer (``tell``) and a
recogniser (``read``), so "how many of the model's stories follow the grammar?" is a measurement, not an opinion.
"""
from .grammar import compile_pattern, pick, recognise, write
from .lexicon import ANIMALS, COLOURS, NAMES, PLACES, THINGS
from .split import held_out

OPENINGS = {
    "en": "[Once upon a time there was a {how} {kind} called {hero} who lived {place}."
          "|Once upon a time a {how} {kind} called {hero} lived {place}."
          "|Once upon a time, there was a {how} {kind} called {hero}, and {hero.he} lived {place}."
          "|There was once a {how} {kind} called {hero} who lived {place}."
          "|{hero} was a {how} {kind} and lived {place}.]",
    "zh": "[从前，{place}住着一只{how}{kind}，名字叫{hero}。"
          "|从前有一只{how}{kind}，名叫{hero}，住在{place}。"
          "|从前，有一只{how}{kind}住在{place}，名字叫{hero}。"
          "|很久很久以前，{place}住着一只{how}{kind}，名叫{hero}。"
          "|{hero}是一只{how}{kind}，住在{place}。]",
}

HOWS = {
    "en": [{"word": w} for w in "small shy cheerful curious sleepy brave polite hungry".split()],
    "zh": [{"word": w} for w in "小小的 害羞的 爱笑的 好奇的 爱睡觉的 勇敢的 有礼貌的 贪吃的".split()],
}

HAS = {
    "en": " [{hero.He} had a {colour} {obj} and loved it very much.|{hero.He} owned only one thing, a {colour} {obj}."
          "|What {hero.he} loved most was {hero.his} {colour} {obj}.|{hero.He} never went anywhere without {hero.his} {colour} {obj}.]",
    "zh": "[{hero}有{obj.one}{colour}的{obj}，喜欢得不得了。|{hero}只有一样宝贝，就是{obj.one}{colour}的{obj}。"
          "|它最喜欢的东西是{obj.one}{colour}的{obj}。|它走到哪里，都带着{obj.one}{colour}的{obj}。]",
}

PLOTS = {
    "en": {
        "lost": HAS["en"] + " One [morning|windy morning|cold morning] the {obj} was gone."
            " {hero} looked [under the bed, behind the stove and even in the soup|in the kitchen, on the roof and twice in {hero.his} own pocket|everywhere, even inside the clock]."
            " [Then {hero.he} heard a small noise behind the house.|At last {hero.he} went outside.|Then somebody sneezed in the garden.]"
            " There [sat|stood] {friend.a} with the {obj} on its head, looking very important."
            " “I only borrowed it,” said the {friend}. “[Today I am a king|It is my birthday|I wanted to be tall]!”"
            " {hero} laughed so much that {hero.he} forgot to be angry."
            " [From that day on they shared it.|Then they played kings until dinner.]",
        "found": " One [day|rainy day|Sunday] {hero.he} found a {colour} {obj} in the grass."
            " “Is this yours?” {hero.he} asked the {friend}. “No,” said the {friend}, “mine is [bigger|older|much nicer].”"
            " “Is this yours?” {hero.he} asked the {other}. “No,” said the {other}, “I have never had {obj.a} in my life.”"
            " {hero} even asked the moon, but the moon [said nothing at all|only smiled|was busy shining]."
            " “Then it is ours,” said {hero}, and everyone was allowed to use the {obj}[| on Sundays| as long as they washed their hands].",
        "share": HAS["en"] + " One day {friend.a} came by and wanted the {obj} too."
            " “Mine,” said {hero}. “Mine,” said the {friend}."
            " They pulled and pulled, and then they both fell into [the mud|the pond|a bush]."
            " [They looked at each other and began to laugh.|It was quiet for a moment, and then they both giggled.]"
            " “Ours,” they said together, and after a [long|hot] bath they took turns with the {obj}.",
        "gift": HAS["en"] + " Soon it was the birthday of {hero.his} best friend, the {friend}."
            " {hero} thought and thought, and then {hero.he} wrapped the {obj} in [old newspaper|green leaves|a clean sock]."
            " “This is for you,” {hero.he} said."
            " The {friend} [turned red|smiled shyly|gave a little jump] and handed {hero} a parcel, too."
            " Inside was {obj.a}, exactly the same."
            " They laughed [until the candles went out|until the table shook|so loudly that the neighbours came to see].",
        "fog": HAS["en"] + " One [evening|morning|autumn day] a thick fog came, and nobody could find the way home."
            " “[Do not worry|Wait a moment|I have an idea],” said {hero}."
            " Then {hero.he} {obj.use}."
            " “[Bravo|Hooray|How clever]!” cried the {friend}, who was the last to get home."
            " [Since then nobody there is afraid of fog.|The fog never came back, it was much too embarrassed.]",
        "race": HAS["en"] + " One day there was a great race [around the lake|over the hill|to the old oak]."
            " Everybody ran, and {hero} ran too, with the {obj} under one arm."
            " Halfway there sat {friend.a} who had lost [a shoe|its glasses|the way]."
            " {hero} stopped and helped to look for [it|them]."
            " So the two of them came last, hand in hand, and [rather|quite] out of breath."
            " The first prize was a cake, but the winner had a stomach ache, so [{hero} and the {friend} ate it|they ate it together].",
        "noise": HAS["en"] + " One night {hero.he} heard a noise: [hoo, hoo|knock, knock|rumble, rumble]."
            " It came from [under the stairs|the attic|the old tree]."
            " {hero} took the {obj} in both hands and tiptoed closer."
            " “Who is there?” {hero.he} whispered."
            " “Only me,” said {friend.a}. “I always [sing|hiccup|snore] when I am [alone|happy|tired].”"
            " {hero} made [warm milk|some tea|two pancakes], and the {friend} was not alone any more."
            " [Now the noise is the best lullaby of all.|Now there are two who make the noise.]",
        "wish": HAS["en"] + " One night {hero.he} saw a falling star and wished for one more {obj}."
            " In the morning there were a hundred of them: in the bath, in the bed and [on the roof|in the oven|up in the trees]."
            " “That is a little too much,” said {hero}."
            " {hero.He} gave one to the {friend}, one to the {other} and one to everybody who came by."
            " In the evening only one {obj} was left, and that was just enough.",
        "broken": HAS["en"] + " One day the {obj} broke."
            " {hero} cried a little, and then a little more."
            " Then {friend.a} came along with a pot of honey."
            " “Honey mends [nearly everything|most things|all but the weather],” said the {friend} and [got to work|set to work|rolled up its sleeves]."
            " Soon the {obj} was whole again, only it smelled of honey."
            " [Every Sunday the bees come to visit, and {hero} does not mind.|Sometimes {hero} licks it when nobody is looking.]",
        "market": HAS["en"] + " At the market {hero.he} swapped the {obj} for {second.a}."
            " Then {hero.he} swapped the {second} for {third.a}, and the {third} for a very small [onion|potato|turnip]."
            " “Oh dear,” said {hero}, “I am not good at this.”"
            " But {friend.a} cried, “Just what I need for my soup!”"
            " And what did the {friend} give {hero.him} for it? The {obj}!"
            " {hero} went home happy, [and the soup was good, too|with a bowl of soup on top of it].",
        "letter": HAS["en"] + " One day the snail brought a letter, and it was three years late."
            " “Dear {hero},” it said, “come to tea and bring the {obj}. Your friend, the {friend}.”"
            " {hero} ran all the way."
            " “You are late,” said the {friend}, “but the tea is still warm.”"
            " They [drank seven cups and did not stop|ate plum cake and told stories|talked and talked] until the moon came up."
            " [The snail was given a medal.|The snail got a cup, too, a very small one.]",
        "sheep": HAS["en"] + " One night {hero.he} could not sleep, so {hero.he} counted sheep: one, two, three."
            " The fourth sheep stopped and asked, “May I [look at|sit on|hold] the {obj} for a moment?”"
            " “Of course,” said {hero} and moved over."
            " The sheep [lay down|curled up] beside it and began to snore."
            " It was a warm and woolly sound, and [soon {hero} was asleep, too|{hero} was asleep before the fifth sheep came].",
        "neighbour": HAS["en"] + " One day somebody moved in next door, somebody big."
            " Boom, went the floor. Crash, went the plates."
            " {hero} took a deep breath, picked up the {obj} and knocked."
            " The door opened, and there stood {friend.a}, shaking all over."
            " “Please do not hurt me,” said the {friend}. “I am only [dancing|unpacking|learning to cook].”"
            " {hero} had to laugh, and [soon they were dancing together|they have been friends ever since|the {friend} laughed, too].",
        "hide": HAS["en"] + " One day {hero.he} played hide and seek with {friend.a}."
            " {hero} hid behind the {obj} and did not even breathe."
            " The {friend} counted to ten, then to twenty, then to a hundred, because counting was such fun."
            " It grew dark, and the stars came out."
            " “Here I am!” called {hero} at last."
            " “And where am I?” called the {friend}, who was [hopelessly|completely] lost."
            " They found each other [by the smell of soup|by shouting|just before breakfast].",
    },
    "zh": {
        "lost": HAS["zh"] + "[有一天早上|一个刮风的早上|一个冷冷的早上]，{obj}不见了。"
            "{hero}找遍了[床底下、炉子后面，连汤里也找了|厨房和屋顶，还把自己的口袋翻了两遍|每个角落，连钟里面也看了]。"
            "[后来，它听见屋子后面有声音。|最后，它走到门外。|忽然，花园里有人打了个喷嚏。]"
            "原来是一只{friend}，把{obj}顶在头上，神气极了。"
            "“我只是借一下，”{friend}说，“[今天我是国王|今天是我的生日|我想变高一点]！”"
            "{hero}哈哈大笑，一点也不生气了。"
            "[从那以后，它们一起用这个宝贝。|它们一起玩到了吃晚饭。]",
        "found": "[有一天|一个下雨天|一个星期天]，{hero}在草地上捡到{obj.one}{colour}的{obj}。"
            "“这是你的吗？”它问{friend}。“不是，”{friend}说，“我的[更大|更旧|好看多了]。”"
            "“这是你的吗？”它问{other}。“不是，”{other}说，“我从来没有过{obj}。”"
            "{hero}又去问月亮，月亮[什么也没说|只是笑了笑|正忙着发光]。"
            "“那就是我们大家的，”{hero}说。从此，谁都可以用这{obj.measure}{obj}[|，只要先洗手|，星期天也可以]。",
        "share": HAS["zh"] + "有一天，来了一只{friend}，也想要{obj}。"
            "“是我的！”{hero}说。“是我的！”{friend}说。"
            "它们拉来拉去，结果一起掉进了[泥坑|池塘|草丛]里。"
            "[它们你看看我，我看看你，都笑了。|安静了一会儿，它们一起笑出声来。]"
            "“是我们的！”它们一起说。洗完澡，它们轮流玩{obj}。",
        "gift": HAS["zh"] + "不久，好朋友{friend}要过生日了。"
            "{hero}想了又想，用[旧报纸|绿树叶|一只干净的袜子]把{obj}包了起来。"
            "“这是送给你的，”它说。"
            "{friend}[脸红了|害羞地笑了|高兴得跳了一下]，也拿出一个小包裹。"
            "打开一看，里面也是{obj.one}{obj}，一模一样。"
            "它们笑啊笑，[把蜡烛都笑灭了|笑得桌子都摇了起来|笑得邻居都跑来看]。",
        "fog": HAS["zh"] + "[一天晚上|一天早上|一个秋天]，来了一场大雾，谁也找不到回家的路。"
            "“[别担心|等一下|我有办法]，”{hero}说。"
            "它{obj.use}。"
            "“[太好了|真聪明|真厉害]！”最后一个到家的{friend}说。"
            "[从此以后，那里谁也不怕大雾了。|大雾再也没有来过，它太不好意思了。]",
        "race": HAS["zh"] + "有一天，大家要[绕着湖|翻过山坡|朝着老树]赛跑。"
            "{hero}也参加了，它把{obj}夹在胳膊下面跑。"
            "半路上坐着一只{friend}，它[丢了一只鞋|丢了眼镜|迷路了]。"
            "{hero}停下来帮忙。"
            "结果，它们手拉手跑了最后一名，累得直喘气。"
            "第一名的奖品是一个大蛋糕，可是第一名肚子疼，[蛋糕就归{hero}和{friend}了|它们就一起把蛋糕吃了]。",
        "noise": HAS["zh"] + "一天夜里，它听见一个声音：[呼噜，呼噜|咚咚，咚咚|吱呀，吱呀]。"
            "声音是从[楼梯下面|阁楼上|老树里]传来的。"
            "{hero}双手抱着{obj}，轻轻走过去。"
            "“谁在那里？”它小声问。"
            "“是我，”一只{friend}说，“我[高兴|累了|一个人]的时候，总是[唱歌|打嗝|打呼噜]。”"
            "{hero}端来[热牛奶|热茶|两张煎饼]，{friend}再也不孤单了。"
            "[现在，那个声音就是最好的摇篮曲。|现在，有两个声音一起响了。]",
        "wish": HAS["zh"] + "一天夜里，它看见一颗流星，就许愿再要{obj.one}{obj}。"
            "第二天早上，来了整整一百{obj.measure}：床上有，浴缸里有，[屋顶上|炉子里|树上]也有。"
            "“这也太多了，”{hero}说。"
            "它送给{friend}一{obj.measure}，送给{other}一{obj.measure}，路过的人都有份。"
            "到了晚上，只剩下最后一{obj.measure}，不多也不少，刚刚好。",
        "broken": HAS["zh"] + "有一天，{obj}坏了。"
            "{hero}哭了一会儿，又哭了一会儿。"
            "这时，一只{friend}抱着一罐蜂蜜走过来。"
            "“蜂蜜[差不多什么都能修|能修好多东西|除了天气什么都能修]，”{friend}说着就[动手了|忙起来了|卷起了袖子]。"
            "很快，{obj}修好了，只是闻起来有一股蜂蜜味。"
            "[每个星期天，蜜蜂都来做客，{hero}一点也不介意。|没人看见的时候，{hero}会偷偷舔一口。]",
        "market": HAS["zh"] + "在集市上，它用{obj}换了{second.one}{second}。"
            "它又用{second}换了{third.one}{third}，再用{third}换了一个小小的[洋葱|土豆|萝卜]。"
            "“哎呀，”{hero}说，“我真不会做买卖。”"
            "可是一只{friend}叫起来：“我做汤正好缺这个！”"
            "{friend}拿什么来换呢？就是那{obj.measure}{obj}！"
            "{hero}高高兴兴地回家了，[汤也很好喝|还带着一碗热汤]。",
        "letter": HAS["zh"] + "有一天，蜗牛送来一封信，晚了整整三年。"
            "信上说：“亲爱的{hero}，请带着{obj}来喝茶。你的朋友{friend}。”"
            "{hero}一路跑了过去。"
            "“你来晚了，”{friend}说，“不过茶还是热的。”"
            "它们[一杯接一杯地喝茶|吃蛋糕、讲故事|说呀说呀]，一直到月亮升起来。"
            "[蜗牛也得到了一枚奖章。|蜗牛也有一杯，是很小很小的一杯。]",
        "sheep": HAS["zh"] + "一天晚上，它睡不着，就数绵羊：一只，两只，三只。"
            "第四只绵羊停下来问：“我可以[看一看|坐一坐|抱一抱]这{obj.measure}{obj}吗？”"
            "“当然可以，”{hero}说着，让出了一点地方。"
            "绵羊[躺下来|缩成一团]，打起了呼噜。"
            "那声音暖暖的、软软的，[{hero}也睡着了|第五只绵羊还没来，{hero}就睡着了]。",
        "neighbour": HAS["zh"] + "有一天，隔壁搬来了一个大个子。"
            "咚咚，地板在响。哗啦，盘子碎了。"
            "{hero}深深吸了一口气，拿起{obj}去敲门。"
            "门开了，里面站着一只{friend}，浑身发抖。"
            "“请不要打我，”{friend}说，“我只是在[跳舞|收拾东西|学做饭]。”"
            "{hero}忍不住笑了，[后来它们一起跳起舞来|从此它们成了好朋友|{friend}也跟着笑了]。",
        "hide": HAS["zh"] + "有一天，它和一只{friend}玩捉迷藏。"
            "{hero}躲在{obj}后面，连大气也不敢出。"
            "{friend}数到十，又数到二十，又数到一百，因为数数太好玩了。"
            "天黑了，星星出来了。"
            "“我在这里！”{hero}终于喊道。"
            "“那我在哪里？”{friend}喊道，原来它[早就|完全]迷路了。"
            "最后，它们[闻着汤的香味|喊着对方的名字|在吃早饭以前]找到了对方。",
    },
}

ENDINGS = {
    "en": "[| Then they all had soup.| And that was a good day.| That night everyone slept very well."
          "| If you walk past their house at night, you can still hear them laugh.| And the moon saw it all and said nothing.| The end.]",
    "zh": "[|后来，大家一起喝了汤。|这真是美好的一天。|那天晚上，大家都睡得很香。|如果你晚上从那里走过，还能听见它们的笑声。"
          "|月亮什么都看见了，什么也没说。|故事讲完了。]",
}

DIFFERENT = (("kind", "friend", "other"), ("obj", "second", "third"))   # no animal meets its own kind, nothing is swapped for itself
SLOTS = ("hero", "kind", "how", "place", "colour", "obj", "friend", "other", "second", "third")


def tables(lang):
    """slot -> the list of entries that may fill it."""
    animals, things = ANIMALS[lang], THINGS[lang]
    return {"hero": NAMES[lang], "kind": animals, "how": HOWS[lang], "place": PLACES[lang], "colour": COLOURS[lang], "obj": things,
            "friend": animals, "other": animals, "second": things, "third": things}


def cast(rng, lang, **fixed):
    """Draw a cast: slot -> entry."""
    table = tables(lang)
    slots = dict(fixed)
    for slot in SLOTS:
        if slot not in slots:
            taken = [slots.get(s) for group in DIFFERENT if slot in group[1:] for s in group]
            choices = [e for e in table[slot] if e not in taken]
            slots[slot] = pick(rng, choices)
    return slots


def pair_held_out(lang, name, thing):
    return held_out("story-thing", lang, name, thing, one_in=8)


def is_held_out(lang, slots, plot):
    """Combinations that the training text never contains: a name with a thing, a name at a place in an event."""
    name = slots["hero"]["word"]
    return (pair_held_out(lang, name, slots["obj"]["word"])
            or held_out("story-event", lang, name, slots["place"]["word"], plot, one_in=10))


def draw(rng, lang, wanted=False, **fixed):
    """A cast and a plot, held out or not as ``wanted`` says."""
    while True:
        slots, plot = cast(rng, lang, **fixed), pick(rng, list(PLOTS[lang]))
        if is_held_out(lang, slots, plot) == wanted:
            return slots, plot


def tell(rng, lang, slots, plot):
    """The story as (opening, rest): the opening is the first sentence."""
    return write(OPENINGS[lang], slots, rng), write(PLOTS[lang][plot] + ENDINGS[lang], slots, rng)


def differ(entries):
    return all(a is not b for i, a in enumerate(entries) for b in entries[:i])


_patterns = {}


def read(text, lang):
    """(plot, slots) if the text is a story of the grammar, else None."""
    for plot, template in PLOTS[lang].items():
        if (lang, plot) not in _patterns:
            _patterns[lang, plot] = compile_pattern(OPENINGS[lang] + template + ENDINGS[lang], tables(lang))
        slots = recognise(_patterns[lang, plot], text, tables(lang))
        if slots is not None and all(differ([slots[s] for s in group if s in slots]) for group in DIFFERENT):
            return plot, slots
    return None
