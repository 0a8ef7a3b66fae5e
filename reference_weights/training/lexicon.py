# ruff: noqa: E501 - sentences are longer than lines
"""The words of the small world, English and Chinese side by side.

Every table is one idea: a row is one thing of the world, its columns are the forms that sentences need.
An *entry* is a dict; ``entry["word"]`` is the form that a plain ``{slot}`` of the grammar takes, other keys are
reached as ``{slot.key}``.  All text in this project's corpus comes from these tables and from the sentences in
``stories.py`` and ``questions.py``; nothing is copied from anywhere.
"""

# --- heroes -------------------------------------------------------------------------------------------------------

_SHE, _HE = ("she", "She", "her", "her"), ("he", "He", "his", "him")


def _name(word, forms):
    he, cap, his, him = forms
    return {"word": word, "he": he, "He": cap, "his": his, "him": him}


NAMES = {
    "en": [_name(w, _SHE) for w in "Mia Lily Nora Ruby Ella Ivy Rosa Anna".split()]
    + [_name(w, _HE) for w in "Tom Ben Leo Max Sam Oscar Hugo Finn".split()],
    "zh": [{"word": w} for w in "豆豆 米米 阿布 朵朵 乐乐 圆圆 糖糖 阿木 小满 多多 小雨 毛毛 果果 阿宝 点点 月月".split()],
}

# --- animals: English, Chinese, what it says in both languages ----------------------------------------------------

_ANIMALS = [
    ("fox", "狐狸"), ("rabbit", "兔子"), ("bear", "熊"), ("mouse", "老鼠"), ("cat", "猫"), ("duck", "鸭子"),
    ("frog", "青蛙"), ("hedgehog", "刺猬"), ("owl", "猫头鹰"), ("goat", "山羊"), ("pig", "猪"), ("squirrel", "松鼠"),
    ("turtle", "乌龟"), ("goose", "大鹅"),
]


def a(noun):
    """The noun with its article: an owl, a fox."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


ANIMALS = {
    "en": [{"word": en, "a": a(en), "A": a(en).capitalize()} for en, _ in _ANIMALS],
    "zh": [{"word": zh} for _, zh in _ANIMALS],
}

# --- things: English, plural, Chinese, its measure word, and how it once beat the fog -----------------------------

_THINGS = [
    ("kite", "kites", "风筝", "只", "tied the kite to the tallest tree, and everyone walked towards its tail",
     "把风筝系在最高的树上，大家都朝着它的尾巴走"),
    ("lamp", "lamps", "灯", "盏", "put the lamp on the highest stone, and everyone walked towards the light",
     "把灯放在最高的石头上，大家都朝着亮光走"),
    ("drum", "drums", "鼓", "面", "beat the drum, and everyone followed the boom, boom, boom",
     "敲起鼓来，大家都跟着咚咚声走"),
    ("umbrella", "umbrellas", "雨伞", "把", "opened and shut the umbrella until the fog was fanned away",
     "把雨伞一开一合，大雾就被扇走了"),
    ("boat", "boats", "小船", "条", "rowed the boat straight through the fog, as if it were soup",
     "划着小船穿过大雾，就像划过一碗汤"),
    ("hat", "hats", "帽子", "顶", "caught the fog under the hat and sat down on it",
     "用帽子扣住大雾，一屁股坐了上去"),
    ("bell", "bells", "铃铛", "个", "rang the bell, and everyone followed the ding, ding, ding",
     "摇起铃铛，大家都跟着叮当声走"),
    ("spoon", "spoons", "勺子", "把", "ate the fog with the spoon, bite by bite, and said it tasted of nothing",
     "用勺子一口一口把大雾吃掉了，还说没什么味道"),
    ("ball", "balls", "皮球", "个", "rolled the ball down the road, and everyone ran after it",
     "让皮球顺着路滚，大家都跟在后面跑"),
    ("book", "books", "书", "本", "read aloud from the book, and everyone came to hear how it ends",
     "大声念起书来，大家都跑来听故事的结尾"),
    ("key", "keys", "钥匙", "把", "turned the key in the middle of the fog, and a door of sunshine opened",
     "把钥匙在雾里轻轻一转，打开了一扇阳光的门"),
    ("blanket", "blankets", "毯子", "条", "spread the blanket on the grass and asked everyone to stay for the night",
     "把毯子铺在草地上，请大家都住一晚"),
    ("teapot", "teapots", "茶壶", "个", "made tea in the teapot, and everyone followed the good smell",
     "用茶壶泡了茶，大家都顺着香味走来"),
    ("button", "buttons", "纽扣", "颗", "buttoned up the fog with the button, like an old coat",
     "用纽扣把大雾扣好，像扣一件旧大衣"),
    ("map", "maps", "地图", "张", "held the map upside down, and strange to say, that was the right way",
     "把地图倒过来看，没想到这样才对"),
    ("cake", "cakes", "蛋糕", "块", "cut the cake, and everyone followed their noses",
     "切开蛋糕，大家都跟着鼻子走来"),
    ("cup", "cups", "杯子", "个", "drank the fog from the cup and hiccuped a small cloud",
     "用杯子把大雾喝光了，打了一个云朵一样的嗝"),
    ("basket", "baskets", "篮子", "个", "packed the fog into the basket and carried it back to the sea",
     "把大雾装进篮子，送回了大海"),
    ("scarf", "scarves", "围巾", "条", "rolled out the scarf along the road, and everyone held on to it",
     "把围巾沿着小路铺开，大家都拉着它走"),
    ("flute", "flutes", "笛子", "支", "played the flute, and everyone followed the tune",
     "吹起笛子，大家都跟着曲子走"),
]

THINGS = {
    "en": [{"word": en, "a": a(en), "many": many, "use": use, "zh": zh, "measure": m} for en, many, zh, m, use, _ in _THINGS],
    "zh": [{"word": zh, "one": "一" + m, "measure": m, "use": use, "en": en} for en, _, zh, m, _, use in _THINGS],
}

# --- places: as a phrase that answers "where?" ----------------------------------------------------------------------

_PLACES = [
    ("in the forest", "森林里"), ("by the sea", "海边"), ("in a small village", "小村子里"), ("on a green hill", "绿山坡上"),
    ("under an old bridge", "旧桥下"), ("near the river", "小河旁"), ("in a quiet garden", "安静的花园里"),
    ("on a tiny island", "一座小岛上"), ("at the foot of a mountain", "山脚下"), ("in an old mill", "老磨坊里"),
    ("behind the bakery", "面包店后面"), ("in a lighthouse", "灯塔里"),
]
PLACES = {"en": [{"word": en} for en, _ in _PLACES], "zh": [{"word": zh} for _, zh in _PLACES]}

# --- colours --------------------------------------------------------------------------------------------------------

_COLOURS = [("red", "红色"), ("blue", "蓝色"), ("green", "绿色"), ("yellow", "黄色"), ("white", "白色"), ("black", "黑色"),
            ("pink", "粉色"), ("brown", "棕色")]
COLOURS = {"en": [{"word": en, "zh": zh} for en, zh in _COLOURS], "zh": [{"word": zh, "en": en} for en, zh in _COLOURS]}

# --- single facts (a model of this size learns them by heart) ---------------------------------------------------------

# what, and its colour
COLOUR_OF = {
    "en": [("snow", "white"), ("milk", "white"), ("rice", "white"), ("grass", "green"), ("a frog", "green"), ("a leaf", "green"),
           ("the sky", "blue"), ("the sea", "blue"), ("the sun", "yellow"), ("a banana", "yellow"), ("a lemon", "yellow"),
           ("coal", "black"), ("the night", "black"), ("a raven", "black"), ("a tomato", "red"), ("a cherry", "red"),
           ("fire", "red"), ("a pig", "pink"), ("a bear", "brown"), ("chocolate", "brown"), ("bread", "brown")],
    "zh": [("雪", "白色"), ("牛奶", "白色"), ("米饭", "白色"), ("草", "绿色"), ("青蛙", "绿色"), ("树叶", "绿色"), ("天空", "蓝色"),
           ("大海", "蓝色"), ("太阳", "黄色"), ("香蕉", "黄色"), ("柠檬", "黄色"), ("煤", "黑色"), ("黑夜", "黑色"), ("乌鸦", "黑色"),
           ("西红柿", "红色"), ("樱桃", "红色"), ("火", "红色"), ("猪", "粉色"), ("熊", "棕色"), ("巧克力", "棕色"), ("面包", "棕色")],
}

OPPOSITES = {
    "en": [("hot", "cold"), ("big", "small"), ("fast", "slow"), ("day", "night"), ("up", "down"), ("open", "shut"), ("old", "new"),
           ("wet", "dry"), ("happy", "sad"), ("full", "empty"), ("light", "heavy"), ("long", "short"), ("loud", "quiet"),
           ("soft", "hard"), ("rich", "poor"), ("thick", "thin"), ("early", "late"), ("left", "right"), ("near", "far"), ("sweet", "sour")],
    "zh": [("热", "冷"), ("大", "小"), ("快", "慢"), ("白天", "夜晚"), ("上", "下"), ("开", "关"), ("旧", "新"), ("湿", "干"),
           ("高兴", "难过"), ("满", "空"), ("轻", "重"), ("长", "短"), ("吵闹", "安静"), ("软", "硬"), ("富", "穷"), ("厚", "薄"),
           ("早", "晚"), ("左", "右"), ("近", "远"), ("甜", "酸")],
}

SOUNDS = {
    "en": [("cow", "moo"), ("duck", "quack"), ("cat", "meow"), ("dog", "woof"), ("sheep", "baa"), ("pig", "oink"), ("mouse", "squeak"),
           ("owl", "hoo"), ("frog", "croak"), ("bee", "buzz"), ("lion", "roar"), ("hen", "cluck"), ("goose", "honk"), ("snake", "hiss")],
    "zh": [("牛", "哞哞"), ("鸭子", "嘎嘎"), ("猫", "喵喵"), ("狗", "汪汪"), ("羊", "咩咩"), ("猪", "哼哼"), ("老鼠", "吱吱"),
           ("猫头鹰", "咕咕"), ("青蛙", "呱呱"), ("蜜蜂", "嗡嗡"), ("狮子", "嗷嗷"), ("母鸡", "咯咯"), ("大鹅", "嘎嘎"), ("蛇", "嘶嘶")],
}

WEEKDAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "zh": "星期一 星期二 星期三 星期四 星期五 星期六 星期天".split(),
}

# more words for translation and copying
_MORE = [("apple", "苹果"), ("rain", "雨"), ("moon", "月亮"), ("star", "星星"), ("tree", "树"), ("flower", "花"), ("house", "房子"),
         ("door", "门"), ("window", "窗户"), ("bread", "面包"), ("soup", "汤"), ("tea", "茶"), ("honey", "蜂蜜"), ("stone", "石头"),
         ("cloud", "云"), ("wind", "风"), ("fish", "鱼"), ("bird", "鸟"), ("horse", "马"), ("bed", "床"), ("table", "桌子"),
         ("chair", "椅子"), ("friend", "朋友"), ("song", "歌"), ("letter", "信"), ("road", "路"), ("river", "河"), ("hill", "山坡")]
TRANSLATIONS = _MORE + [(en, zh) for en, _, zh, _, _, _ in _THINGS] + _COLOURS + [p for p in _ANIMALS if p[1][0] != "大"]

WORDS = {"en": sorted({en for en, _ in TRANSLATIONS}), "zh": sorted({zh for _, zh in TRANSLATIONS})}

COUNTABLE = {
    "en": [("apple", "apples"), ("star", "stars"), ("fish", "fish"), ("tree", "trees"), ("bird", "birds"), ("egg", "eggs"),
           ("bell", "bells"), ("cake", "cakes"), ("book", "books"), ("cup", "cups"), ("frog", "frogs"), ("key", "keys")],
    "zh": [("苹果", "个苹果"), ("星星", "颗星星"), ("鱼", "条鱼"), ("树", "棵树"), ("鸟", "只鸟"), ("鸡蛋", "个鸡蛋"), ("铃铛", "个铃铛"),
           ("蛋糕", "块蛋糕"), ("书", "本书"), ("杯子", "个杯子"), ("青蛙", "只青蛙"), ("钥匙", "把钥匙")],
}

# --- the great outside: what the model is asked about and does not know ------------------------------------------------

OUTSIDE = {
    "en": {
        "land": "France Spain Italy Japan China India Brazil Egypt Canada Mexico Norway Sweden Poland Greece Turkey Kenya Chile Peru "
                "Cuba Nepal Germany England Russia Korea Austria Ireland Iceland Finland Vietnam Thailand".split(),
        "person": "the president|the queen|the king of England|Einstein|Newton|Shakespeare|Mozart|Picasso|your mother|my teacher|"
                  "the doctor|the mayor|a famous singer|the author|my neighbour|the director".split("|"),
        "topic": "gravity|electricity|music theory|the stock market|chemistry|quantum physics|politics|history|philosophy|computers|"
                 "the internet|football|cooking|Python|JavaScript|economics|biology|photosynthesis|the brain|money|law|religion|"
                 "medicine|mathematics|geometry|grammar|war|art|cars|rockets".split("|"),
        "stuff": "a phone|a train ticket|a computer|gold|a car|oil|an aeroplane|a shirt|a violin|a diamond|a tractor|a guitar|"
                 "a bicycle|a camera|a television|a fridge".split("|"),
        "beast": "zebra|dragon|whale|camel|crab|ant|penguin|giraffe|unicorn|robot|shark|worm".split("|"),
        "word": "justice|velocity|democracy|entropy|algebra|opera|oxygen|logic|culture|energy|novel|senate|budget|poetry|satire|plasma".split("|"),
    },
    "zh": {
        "land": "法国 西班牙 意大利 日本 中国 印度 巴西 埃及 加拿大 墨西哥 挪威 瑞典 波兰 希腊 土耳其 德国 英国 俄罗斯 韩国 美国 泰国 越南 "
                "智利 秘鲁".split(),
        "person": "总统 国王 女王 爱因斯坦 牛顿 李白 莫扎特 你妈妈 我的老师 医生 市长 歌手 作者 邻居 导演 校长".split(),
        "topic": "引力 电 音乐理论 股市 化学 量子力学 政治 历史 哲学 电脑 互联网 足球 做菜 编程 经济 生物 光合作用 大脑 金钱 法律 医学 数学 "
                 "几何 语法 战争 艺术 汽车 火箭".split(),
        "stuff": "手机 火车票 电脑 黄金 汽车 石油 飞机 衬衫 小提琴 钻石 拖拉机 吉他 自行车 相机 电视 冰箱".split(),
        "beast": "斑马 恐龙 鲸鱼 骆驼 螃蟹 蚂蚁 企鹅 长颈鹿 机器人 鲨鱼".split(),
        "word": "正义 速度 民主 代数 歌剧 氧气 逻辑 文化 能量 小说 预算 诗歌".split(),
    },
}

# --- other Chinese words that should not be cut, for the tokenizer (see tokenizer.py) -----------------------------------

CHINESE_WORDS = (
    "从前 很久 以前 有一天 有一次 一天 早上 晚上 半夜 夜里 住着 住在 名字 名叫 叫做 小小的 胖胖的 害羞的 爱笑的 爱睡觉的 好奇的 "
    "最喜欢 喜欢 总是 带着 走到 哪里 那里 这里 什么 怎么 为什么 因为 所以 可是 但是 后来 于是 从此 从那 以后 终于 原来 忽然 突然 "
    "大家 我们 你们 他们 它们 自己 一起 两个 朋友 邻居 说道 问道 回答 大声 小声 轻轻 慢慢 悄悄 马上 还是 只有 没有 不是 就是 这是 "
    "知道 不知道 觉得 起来 出来 进来 过来 回家 回到 睡觉 睡着 睡不着 吃饭 故事 月亮 星星 太阳 世界 地方 东西 一个 一只 一封 一碗 "
    "一口 一点 一样 一直 时候 今天 明天 昨天 前面 后面 下面 上面 里面 旁边 颜色 反义词 意思 英语 中文 多少 几个 等于 怎样 请问 可以 "
    "再见 你好 谢谢 天气 首都 多大 多远 是谁 谁的 听见 看见 找到 丢了 不见 到处 声音 奇怪 害怕 高兴 难过 生气 大笑 笑了 哭了 蜂蜜 "
    "雾 大雾 小路 比赛 生日 礼物 一模一样 蜗牛 信 绵羊 捉迷藏 集市 洋葱 愿望 流星 雨 汤 茶 热的 暖暖的 还有 已经 跟我说 跟着我 重复 "
    "数到 一共 数一数 第一个 最后 一遍 每天 每个 世上 没人 谁也 不过 只好 只是 非常 特别 很大 模型 小小 语言 帮助 讲 唱 唱歌"
).split()


def chinese_words():
    """All Chinese words of the world, longest first: what ``tokenizer.py`` splits at."""
    words = set(CHINESE_WORDS)
    for table in (NAMES["zh"], ANIMALS["zh"], THINGS["zh"], COLOURS["zh"]):
        words.update(e["word"] for e in table)
    words.update(w for pair in COLOUR_OF["zh"] + OPPOSITES["zh"] + SOUNDS["zh"] for w in pair)
    words.update(WEEKDAYS["zh"], WORDS["zh"], (w for w, _ in COUNTABLE["zh"]))
    for group in OUTSIDE["zh"].values():
        words.update(group)
    return sorted(words, key=lambda w: (-len(w), w))
