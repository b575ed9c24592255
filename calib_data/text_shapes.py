"""Other shapes of text: letters, diaries, notices, lists, recipes, verses, code, tables, messages, other languages."""
import json

import text_stories as stories
from text_facts import GROUPS, MONTHS
from text_pen import an, capital, listing

LANGUAGES = "English French German Spanish Portuguese Italian Swedish Polish Turkish Russian Greek Japanese Chinese".split()
PHRASES = [
    ("Good morning!", "Bonjour !", "Guten Morgen!", "¡Buenos días!", "Bom dia!", "Buongiorno!", "God morgon!", "Dzień dobry!",
     "Günaydın!", "Доброе утро!", "Καλημέρα!", "おはようございます。", "早上好！"),
    ("Thank you very much.", "Merci beaucoup.", "Vielen Dank.", "Muchas gracias.", "Muito obrigado.", "Grazie mille.",
     "Tack så mycket.", "Dziękuję bardzo.", "Çok teşekkür ederim.", "Большое спасибо.", "Ευχαριστώ πολύ.", "どうもありがとうございます。", "非常感谢。"),
    ("Where is the station?", "Où est la gare ?", "Wo ist der Bahnhof?", "¿Dónde está la estación?", "Onde fica a estação?",
     "Dov'è la stazione?", "Var är stationen?", "Gdzie jest dworzec?", "İstasyon nerede?", "Где вокзал?",
     "Πού είναι ο σταθμός;", "駅はどこですか。", "车站在哪里？"),
    ("The house is small.", "La maison est petite.", "Das Haus ist klein.", "La casa es pequeña.", "A casa é pequena.",
     "La casa è piccola.", "Huset är litet.", "Dom jest mały.", "Ev küçük.", "Дом маленький.", "Το σπίτι είναι μικρό.",
     "家は小さいです。", "房子很小。"),
    ("It is raining today.", "Il pleut aujourd'hui.", "Heute regnet es.", "Hoy llueve.", "Hoje está chovendo.", "Oggi piove.",
     "Det regnar idag.", "Dzisiaj pada deszcz.", "Bugün yağmur yağıyor.", "Сегодня идёт дождь.", "Σήμερα βρέχει.",
     "今日は雨です。", "今天下雨。"),
    ("I would like a coffee, please.", "Je voudrais un café, s'il vous plaît.", "Ich möchte bitte einen Kaffee.",
     "Quisiera un café, por favor.", "Eu queria um café, por favor.", "Vorrei un caffè, per favore.",
     "Jag skulle vilja ha en kaffe, tack.", "Poproszę kawę.", "Bir kahve istiyorum, lütfen.", "Я бы хотел кофе, пожалуйста.",
     "Θα ήθελα έναν καφέ, παρακαλώ.", "コーヒーをください。", "请给我一杯咖啡。"),
    ("How are you?", "Comment allez-vous ?", "Wie geht es Ihnen?", "¿Cómo está usted?", "Como vai você?", "Come sta?",
     "Hur mår du?", "Jak się masz?", "Nasılsın?", "Как дела?", "Τι κάνεις;", "お元気ですか。", "你好吗？"),
    ("Good night.", "Bonne nuit.", "Gute Nacht.", "Buenas noches.", "Boa noite.", "Buona notte.", "God natt.", "Dobranoc.",
     "İyi geceler.", "Спокойной ночи.", "Καληνύχτα.", "おやすみなさい。", "晚安。"),
    ("The water is cold.", "L'eau est froide.", "Das Wasser ist kalt.", "El agua está fría.", "A água está fria.",
     "L'acqua è fredda.", "Vattnet är kallt.", "Woda jest zimna.", "Su soğuk.", "Вода холодная.", "Το νερό είναι κρύο.",
     "水は冷たいです。", "水很冷。"),
    ("We have two cats.", "Nous avons deux chats.", "Wir haben zwei Katzen.", "Tenemos dos gatos.", "Nós temos dois gatos.",
     "Abbiamo due gatti.", "Vi har två katter.", "Mamy dwa koty.", "İki kedimiz var.", "У нас две кошки.", "Έχουμε δύο γάτες.",
     "猫を二匹飼っています。", "我们有两只猫。"),
]
NAMED = ("My name is {N}.|Je m'appelle {N}.|Ich heiße {N}.|Me llamo {N}.|Meu nome é {N}.|Mi chiamo {N}.|Jag heter {N}.|"
         "Nazywam się {N}.|Benim adım {N}.|Меня зовут {N}.|Με λένε {N}.|私の名前は{N}です。|我叫{N}。").split("|")
TALES = [
    "Il était une fois [un renard|un garçon|un vieux pêcheur] qui habitait [près de la forêt|au bord de la mer]. "
    "Chaque matin, il [comptait les nuages|préparait le café|écoutait le vent]. Un jour, il a trouvé [une clé|une "
    "lettre|une carte] sous la porte. « Qui l'a perdue ? » a-t-il demandé. [Personne n'a répondu.|C'était à sa "
    "voisine, et depuis ils sont amis.]",
    "Es war ein kalter Tag im [Januar|Februar]. [Die Straßen waren leer|Der Fluss war gefroren], und {N} wollte nach "
    "Hause. „[Wie spät ist es?|Ist noch Suppe da?]“, fragte [die Mutter|der Müller]. Draußen fiel der Schnee, und im "
    "Ofen brannte ein Feuer. Am Abend [tranken alle Tee|erzählte die Großmutter eine Geschichte] und [gingen früh "
    "schlafen|hörten dem Wind zu].",
    "Había una vez [una niña|una mujer] que vivía [en un pueblo pequeño|junto al mar]. Tenía [tres gallinas|un gato "
    "negro|un jardín] y muchos amigos. Una mañana el sol no salió. «¿Qué pasa?», preguntó {N}. [Era solo una nube muy "
    "grande.|Era todavía de noche, porque el reloj iba mal.] Todos se rieron [mucho|hasta la noche].",
    "Det var en gång [en flicka|en gammal fiskare] som bodde [vid havet|på en ö]. Varje [morgon|kväll] gick {N} ner "
    "till båten och såg på vågorna. \"[Blir det regn?|Är det långt till stan?]\" frågade {M}. \"[Kanske|Inte idag],\" "
    "sa {N}. [Sedan åt de bröd och ost.|Sedan rodde de hem igen.]",
    "Era uma vez [um menino|um gato] que gostava de [contar estrelas|ouvir histórias]. [Todas as noites|No verão] ele "
    "subia ao telhado. A avó dizia: «Não caias!» E ele respondia: «[Estou a ver o mar|São mais de mil].»",
    "C'era una volta [un orologiaio|una gatta] che abitava in una città [piccola|sul fiume]. [Ogni giorno|La "
    "domenica] andava al mercato e comprava [pane e olive|due limoni]. «Perché così poco?» chiedeva {N}. «[Perché è "
    "abbastanza|Domani è un altro giorno].»",
]
EMOJI = "🙂 😀 🎉 🌧️ ☀️ 🌊 🍎 🐈 🚲 ❤️ 👍 🔑 📚 ⛵ 🌱 🔔".split()
GOODS = {"flour": "kg", "sugar": "g", "butter": "g", "milk": "l", "eggs": "", "apples": "", "onions": "", "rice": "g",
         "tea": "g", "salt": "g", "cheese": "g", "candles": "", "string": "m", "nails": "", "soap": "bars", "lamp oil": "l"}


def phrases(pen):
    """A sentence in several languages, or one language's phrase book."""
    name = pen.pick(stories.GIRLS)
    rows = PHRASES + [tuple(t.replace("{N}", name) for t in NAMED)]
    if pen.chance(0.5):
        row = pen.pick(rows)
        wanted = pen.some(range(1, len(LANGUAGES)), 2, 6)
        return "\n".join([f"English: {row[0]}"] + [f"{LANGUAGES[i]}: {row[i]}" for i in wanted])
    i = pen.number(1, len(LANGUAGES) - 1)
    return "\n".join([f"English - {LANGUAGES[i]}"] + [f"{row[0]} - {row[i]}" for row in pen.some(rows, 2, 5)])


def translation(pen):
    row = pen.pick(PHRASES)
    i = pen.number(1, len(LANGUAGES) - 1)
    ask = pen.pick([f"How do you say \"{row[0]}\" in {LANGUAGES[i]}?", f"Translate into {LANGUAGES[i]}: {row[0]}"])
    return [("user", ask), ("assistant", row[i])]


def foreign(pen):
    return pen.fill(pen.pick(TALES), stories.cast(pen))


def message(pen):
    """Short messages between friends, with emoji."""
    v = dict(stories.cast(pen), e=pen.pick(EMOJI), e2=pen.pick(EMOJI), h=pen.number(1, 12), n=pen.number(2, 9))
    lines = ["{N}: [Are you coming to {spot} today?|Where are you?|Did you see the sunset? {e}|I found your {thing}! "
             "{e}|Happy birthday! 🎉 {e}]",
             "{M}: [Yes, at {h} o'clock {e2}|On my way {e2}|Thank you so much! {e2}|Sorry, not today {e2}|Give me {n} "
             "minutes.]",
             "{N}: [Great!|See you there 👍|No problem {e}|Bring {food}, please {e}|Ok {e}]",
             "{M}: [{e2}{e2}|Bye {e2}|Until then!|I will bring {n} {food}.]"]
    return "\n".join(pen.fill(line, v) for line in lines[:pen.number(2, 4)])


def letter(pen):
    v = dict(stories.cast(pen), month=pen.pick(MONTHS), n=pen.number(1, 28), k=pen.number(2, 9))
    text = ("[{spot}, {n} {month}\n|{n} {month}\n|]Dear {M},\n[Thank you for your letter.|I hope that you are "
            "well.|It has been a long time since I wrote.|How are you? I am fine.] "
            "[Here it has rained for {k} days.|The summer here is warm and dry.|We had the first snow on {day}.|The "
            "days are getting longer.] "
            "[Yesterday I [went to|walked past] {spot2} and [thought of you|met {O} there].|I have learned to [bake "
            "bread|play the drum|sail], and next time I will show you.|My {colour} {thing} is broken, but {O} will "
            "repair it.] "
            "[Can you come on {day}?|When will you visit us?|Please write soon.|Do you still have my {thing}?] "
            "[Bring your {colour2} coat, because the evenings are cold.|There will be soup and fresh bread.|I have so "
            "much to tell you.|]\n"
            "[Your friend|With love|Yours|Many greetings], {N}")
    return pen.fill(text, v).replace(" \n", "\n")


def diary(pen):
    v = dict(stories.cast(pen), month=pen.pick(MONTHS), n=pen.number(1, 28), k=pen.number(2, 9))
    first = ("{day}, {n} {month}. [I got up at {k} o'clock.|I slept badly.|It was a long day.|A quiet day.] ["
             + stories.WEATHER + "] "
             "I [met {M} at {spot}|stayed at home and read|walked from {spot} to {spot2}|helped {O} in the garden]. "
             "[We talked about old times|There was nobody else there|I counted {k} boats|My feet are still tired]. "
             "[Tomorrow I will [write to {M}|buy {food}|mend the {thing}].|I must not forget the {food}.|Now I am "
             "tired. Good night.]")
    return pen.fill(first, v)


def notice(pen):
    v = dict(stories.cast(pen), h=pen.number(7, 11), k=pen.number(12, 18), n=pen.number(2, 30), price=pen.number(2, 40),
             phone=f"{pen.number(10, 99)} {pen.number(100, 999)} {pen.number(10, 99)}")
    return pen.fill(pen.pick([
        "LOST: {acolour} {thing}, near {spot}[, on {day}]. [It is old but I love it.|Reward: {price} coins.] Please "
        "call {phone} or ask for {N} at {spot2}.",
        "FOUND: {acolour} {thing}. [It lay on a bench by {spot}.|Somebody left it at {spot}.] The owner may fetch it "
        "on {day} between {h}:00 and {k}:00.",
        "FOR SALE: {thing}, {colour}, [almost new|used but good], {price} coins. Also {n} jars of [honey|plum jam]. "
        "Ask {O}.",
        "NOTICE\nThe library is open from {h}:00 to {k}:00, but not on {day}. [Please be quiet.|Please bring the "
        "books back in time.|Dogs must wait outside.]",
        "[Spring|Summer|Autumn|Winter] fair at {spot}\nOn {day} from {h}:00. [Music, {food} and a race for "
        "children.|Bring {food} and good shoes.] Entry: {price} coins, children free.",
        "Weather for {day}: [rain in the morning, dry in the evening|sunny, with a light wind|fog near the river|snow "
        "above {price}0 metres], {n} degrees. [Take an umbrella.|A good day for washing.|Drive slowly.]",
        "News: [The bridge near {spot} is open again|A storm broke {n} trees near {spot}|{N} won the race on "
        "{day}|The mill has {acolour} roof now]. [\"It was high time,\" said {O}.|Nobody was hurt.|{N} and {M} were "
        "the first to see it.|The work took {n} days.]"]), v)


def shopping(pen):
    head = pen.pick(["Shopping list:", "To buy:", "From the shop:", "Shopping for " + pen.pick(stories.DAYS)])
    lines = []
    for item in pen.some(list(GOODS), 3, 7):
        unit = GOODS[item]
        amount = pen.number(1, 9) * (100 if unit == "g" else 1)
        lines.append(f"- {item}, {amount} {unit}" if unit else f"- {amount} {item}" if amount > 1 else f"- {item}")
    return head + "\n" + "\n".join(lines)


def todo(pen):
    v = stories.cast(pen)
    tasks = pen.some(["write to {M}", "water the beans", "repair the {thing}", "buy {food}", "call {O}", "sweep the floor",
                      "feed the hens", "pay the miller", "return the books", "paint the {thing} {colour}",
                      "meet {M} at {spot}",
                      "wind the clock", "fetch wood", "bake two loaves of bread", "wash the windows"], 3, 6)
    mark = pen.pick(["- ", "* ", "# "])
    head = pen.pick(["To do:", "To do on {day}:", "Today:", "{N}'s list:"])
    if mark == "# ":
        return pen.fill(head + "\n" + "\n".join(f"{i}. {t}" for i, t in enumerate(tasks, 1)), v)
    return pen.fill(head + "\n" + "\n".join(mark + t for t in tasks), v)


def recipe(pen):
    food = pen.pick("apple pear plum onion potato carrot cherry lemon".split())
    dish = pen.pick(["soup", "cake", "pie"])
    v = dict(f=food, d=dish, a=pen.number(2, 6), b=pen.number(2, 4), g=pen.number(2, 9) * 50, m=pen.number(3, 12) * 5)
    if dish == "soup":
        steps = ["Cut {a} pieces of {f} and [one onion|two leeks] into small cubes.",
                 "Fry them in a little butter[ until they smell good|].",
                 "Add {b} litres of water and [a spoon of salt|salt and pepper].", "Let it boil for {m} minutes.",
                 "Serve it hot, with bread."]
    else:
        steps = ["Mix {g} g of flour with {b} eggs and [a little milk|a pinch of salt].",
                 "Add {a} pieces of {f}, cut [small|into thin slices].",
                 "Put everything into a round pan.", "Bake it for {m} minutes[ in a hot oven|].",
                 "Let it cool before you cut it."]
    title = f"{capital(food)} {dish}"
    return pen.fill(title + "\n" + "\n".join(f"{i}. {s}" for i, s in enumerate(steps, 1)), v)


VERSES = [
    ("The [wind|rain] is [cold|loud], the [night|road] is long,\nbut [every bird|my old friend] still [sings a|knows "
     "the] song.", ""),
    ("I had a little [boat|cart] of wood,\nit carried me as best it could.", ""),
    ("The [cat|fox] sat down beside the door\nand counted [mice|stars] from one to four.", ""),
    ("The moon is [round|high], the sea is [wide|deep],\n[the boats are home, the children sleep|and all the fish "
     "have gone to sleep].", ""),
    ("A [seed|bean] lay sleeping in the [ground|earth] so deep,\nthe rain came by and woke it from its sleep.", ""),
    ("The clock says tick, the clock says tock,\n[the hen is waiting by the lock|there is a key for every lock].", ""),
    ("My coat is [red|old], my coat is [blue|new],\nit keeps me warm and so do you.", ""),
    ("The miller [sings|hums], the wheel goes round,\nthe flour falls without a sound.", ""),
    ("In [spring|May] the [hills|fields] are [green|bright] again,\nthey like the sun, they like the rain.", ""),
]


def verse(pen):
    lines = [pen.fill(v[0]) for v in pen.some(VERSES, 2, 4)]
    return "\n".join(lines)


RIDDLES = [("I have hands but can't hold anything.", "clock"), ("I have teeth but I don't bite.", "comb"),
           ("I have a neck but no head.", "bottle"),
           ("I run all day and never get tired.", "river"), ("The more you take from me, the bigger I get.", "hole"),
           ("I have leaves but I am not a tree.", "book"), ("I have one eye but I can't see.", "needle"),
           ("I follow you in the sun and leave you in the dark.", "shadow"), ("I have keys but no doors.", "piano"),
           ("I have a face but no nose, and I show you the hour.", "clock"), (
            "I am full of holes and still hold water.", "sponge"),
           ("I go up and down the hill but I never move.", "road"), ("You can break me without touching me.", "promise")]


def riddle(pen):
    text, answer = pen.pick(RIDDLES)
    v = dict(stories.cast(pen), t=text, w=an(answer))
    return pen.fill(pen.pick(["{t} What am I?\n[{^w}.|Answer: {w}.]",
                              "\"{t} What am I?\" asked {N}.\n[\"{^w}!\" said {M} at once.|{M} thought for a long "
                              "time. \"Is it {w}?\" \"Yes,\" said {N}.|\"I don't know,\" said {M}. \"You are {w},\" "
                              "said {O} from behind the newspaper.]"]), v)


def place(pen):
    """A description without a plot."""
    v = dict(stories.cast(pen), n=pen.number(3, 90), k=pen.number(2, 9))
    return pen.fill("[The house|The shop|The room] [near|behind|next to] {spot} has {k} windows and {acolour} door. "
                    "[Inside it smells of [bread|paper|soap|old wood].|It was built {n} years ago.] "
                    "On the left stands [a table with {k} chairs|a stove|a shelf full of books], and on the right "
                    "[hangs {acolour} {thing}|there is a bed|a clock ticks]. "
                    "[From the window you can see {spot2}.|In the morning the sun shines in.|When the wind blows, the "
                    "roof sings.] "
                    "[{N} and {M} live there now.|Nobody has lived there since the flood.|{O} sells {food} there on "
                    "{day}s.|A cat sleeps on the stairs.]", v)


# ---- for programs -------------------------------------------------------------------------------------------------

PYTHON = [
    "def {f}({x}, {y}):\n    \"\"\"Returns the {what} of two numbers.\"\"\"\n    return {x} {op} "
    "{y}\n\nprint({f}({a}, {b}))  # {r}",
    "{x} = {a}\n{y} = {b}\nprint({x} {op} {y})  # prints {r}",
    "def test_{f}():\n    assert {f}({a}, {b}) == {r}",
]
OTHER = [
    "total = 0\nfor i in range({n}):\n    total += i\nprint(total)  # {sum}",
    "for {x} in range({a}, {b2}):\n    print({x})",
    "items = [{row}]\nprint(len(items))  # {len}\nprint(max(items))  # {max}",
    "int sum = 0;\nfor (int i = 0; i < {n}; i++) {\n    sum += i;\n}\nprintf(\"%d\\n\", sum); /* {sum} */",
    "int max(int a, int b) {\n    return a > b ? a : b;\n}",
    "SELECT name, age FROM {table} WHERE age > {a} ORDER BY name;",
    "INSERT INTO {table} (name, age) VALUES ('{N}', {a});",
    "$ ls {table}\n{f}.txt  notes.md  {table}.csv\n$ wc -l {table}.csv\n{n} {table}.csv",
    "$ cp {f}.txt {table}/\n$ cd {table}\n$ cat {f}.txt\n{N} {a} {b}",
    "<ul>\n  <li>{N}</li>\n  <li>{M}</li>\n</ul>",
    "<p class=\"{table}\">{N} is {a} years old.</p>",
    "[{table}]\nname = {N}\nport = {port}\ncolour = {c}\nactive = {flag}",
    "name: {N}\nage: {a}\nfriends:\n  - {M}\n  - {P}",
    "while ({x} > 0) {\n    {x} = {x} - {b};\n}",
    "if {x} > {a}:\n    print(\"big\")\nelse:\n    print(\"small\")",
]


def put(template, values):
    for key, value in values.items():
        template = template.replace("{" + key + "}", str(value))
    return template


def code(pen):
    a, b = pen.number(2, 20), pen.number(2, 9)
    op, what = pen.pick([("+", "sum"), ("-", "difference"), ("*", "product")])
    row, n, v = pen.some(range(1, 60), 3, 6), pen.number(3, 20), stories.cast(pen)
    x, y = pen.pick([("a", "b"), ("x", "y"), ("left", "right"), ("width", "height"), ("first", "second")])
    name = {"+": ["add", "total"], "-": ["subtract", "minus"], "*": ["multiply", "area"]}[op]
    values = dict(f=pen.pick(name), x=x, y=y, op=op, what=what, a=a, b=b, r={"+": a + b, "-": a - b, "*": a * b}[op], n=n,
                  sum=n * (n - 1) // 2, b2=a + b, row=", ".join(map(str, row)), len=len(row), max=max(row),
                  N=v["N"], M=v["M"],
                  P=pen.pick(stories.GIRLS), c=v["colour"], table=pen.pick(["people", "ships", "books", "birds", "towns"]),
                  port=pen.number(1024, 9999), flag=pen.pick(["true", "false"]))
    text = put(pen.pick(PYTHON if pen.chance(0.4) else OTHER), values)
    return text.replace("\n\n", "\n")


def record(pen):
    v = stories.cast(pen)
    return {"id": pen.number(1, 999), "name": v["N"], "kind": v["kind"], "age": pen.number(1, 90), "home": v["spot"],
            "likes": pen.some(stories.FOODS, 1, 3), "friend": None if pen.chance(0.2) else v["M"],
            "active": pen.chance(0.5)}


def json_text(pen):
    r = record(pen)
    if pen.chance(0.4):
        r = {k: r[k] for k in pen.some(list(r), 2, 5)}
    if pen.chance(0.3):
        rows = [{k: record(pen)[k] for k in ("id", "name", "age")} for _ in range(pen.number(2, 4))]
        return json.dumps(rows, indent=2 if pen.chance(0.3) else None)
    return json.dumps(r, indent=2 if pen.chance(0.6) else None)


def table(pen):
    rows = [(v["N"], v["kind"], pen.number(1, 90)) for v in (stories.cast(pen) for _ in range(pen.number(2, 5)))]
    form = pen.number(0, 2)
    if form == 0:
        return "\n".join(["name,kind,age"] + [f"{n},{k},{a}" for n, k, a in rows])
    if form == 1:
        return "\n".join(["| name | kind | age |", "|------|------|-----|"] + [f"| {n} | {k} | {a} |" for n, k, a in rows])
    t = pen.number(0, 80000)
    lines = []
    for name, _, a in rows:
        t += pen.number(1, 900)
        date = f"2026-{pen.number(1, 12):02d}-{pen.number(1, 28):02d}"
        event = pen.pick([f"INFO user {name} logged in", f"INFO {a} files copied", f"WARN disk is {a}% full",
                          f"INFO job {a} done", "ERROR connection lost, trying again"])
        lines.append(f"{date} {t // 3600 % 24:02d}:{t // 60 % 60:02d}:{t % 60:02d} {event}")
    return "\n".join(lines)


def timetable(pen):
    hour, minute, v = pen.number(6, 15), pen.number(0, 11) * 5, stories.cast(pen)
    lines = []
    for stop in pen.some(stories.SPOTS, 3, 6):
        lines.append(f"{hour:02d}:{minute:02d} {stop}")
        minute += pen.number(1, 6) * 5
        hour, minute = hour + minute // 60, minute % 60
    return pen.fill("[Bus {n}|Boat {n}|Train {n}], {day}\n", dict(v, n=pen.number(1, 40))) + "\n".join(lines)


def definition(pen):
    group, names = pen.pick(list(GROUPS.items()))
    word = pen.pick(names)
    others = pen.some([n for n in names if n != word], 2, 4)
    return pen.fill("[{w} is one of the {g}. Others are {o}.|{w}: one of the {g}, like {o}.|Among the {g} are {w}, "
                    "{o}.|{^g}: {w}, {o}.]",
                    dict(w=capital(word), g=group, o=listing(others)))


MAKERS = [(2, phrases), (3, translation), (3, foreign), (2, message), (4, letter), (4, diary), (4, notice), (2, shopping),
          (2, todo), (2, recipe), (2, verse), (2, riddle), (3, place), (8, code), (3, json_text), (3, table), (1, timetable),
          (1, definition)]
