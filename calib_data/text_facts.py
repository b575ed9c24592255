"""Facts, explanations, sums and chats of the text generator. Whatever is computed here is computed, so it is right."""
import text_stories as stories
from text_pen import an, capital, listing

CAPITALS = dict(France="Paris", Spain="Madrid", Italy="Rome", Germany="Berlin", Sweden="Stockholm", Norway="Oslo",
                Denmark="Copenhagen", Finland="Helsinki", Poland="Warsaw", Greece="Athens", Portugal="Lisbon",
                Austria="Vienna", Hungary="Budapest", Ireland="Dublin", Japan="Tokyo", Egypt="Cairo", Kenya="Nairobi",
                Peru="Lima", Chile="Santiago", Canada="Ottawa", Cuba="Havana", Iceland="Reykjavik")
OPPOSITES = dict(hot="cold", big="small", high="low", fast="slow", old="new", wet="dry", light="dark", full="empty",
                 open="closed", hard="soft", early="late", happy="sad", loud="quiet", long="short", near="far",
                 rich="poor", strong="weak", thick="thin", clean="dirty", left="right", up="down", first="last",
                 sweet="bitter", rough="smooth", heavy="light", asleep="awake", true="false", inside="outside")
SOUNDS = dict(dog="barks", cat="meows", cow="moos", duck="quacks", horse="neighs", owl="hoots", bee="buzzes",
              snake="hisses", frog="croaks", lion="roars", mouse="squeaks", sheep="bleats", wolf="howls", crow="caws")
YOUNG = dict(dog="puppy", cat="kitten", cow="calf", duck="duckling", horse="foal", sheep="lamb", goat="kid", hen="chick",
             bear="cub", frog="tadpole", swan="cygnet", goose="gosling", deer="fawn", pig="piglet")
LEGS = dict(spider=8, ant=6, bee=6, dog=4, cat=4, horse=4, hen=2, duck=2, snake=0, fish=0, beetle=6, cow=4, owl=2, crab=10)
COLOUR_OF = {"grass": "green", "snow": "white", "the sky": "blue", "coal": "black", "milk": "white", "a ripe tomato": "red",
             "a ripe banana": "yellow", "an orange": "orange", "a cucumber": "green", "a raven": "black",
             "the sun": "yellow",
             "chocolate": "brown", "an elephant": "grey", "a fire engine": "red", "a leaf in spring": "green"}
USES = {"hammer": "drive in nails", "saw": "cut wood", "needle": "sew cloth", "broom": "sweep the floor",
        "spoon": "eat soup", "ladder": "climb up to high places", "kettle": "boil water", "clock": "tell the time",
        "map": "find the way", "lamp": "give light", "umbrella": "stay dry in the rain", "pen": "write letters",
        "oven": "bake bread", "key": "open a lock", "oar": "row a boat", "net": "catch fish", "rope": "tie things together",
        "thermometer": "measure how warm it is", "ruler": "measure a length", "compass": "find the north"}
WORKERS = {"bakes bread": "baker", "catches fish": "fisher", "repairs clocks": "clockmaker", "paints pictures": "painter",
           "sews clothes": "tailor", "teaches children": "teacher", "grows vegetables": "gardener",
           "works with wood": "carpenter", "makes pots of clay": "potter", "looks after sheep": "shepherd",
           "grinds grain": "miller", "takes people across the river": "ferryman", "lends out books": "librarian",
           "keeps bees": "beekeeper", "plays in the band": "musician", "cooks the soup": "cook"}
GROUPS = {"fruits": "apple pear plum cherry lemon fig orange grape melon".split(),
          "animals": "fox hare owl bear otter horse goat duck wolf".split(),
          "colours": "red blue green yellow white black brown grey".split(),
          "tools": "hammer saw needle broom spade knife brush ladder".split(),
          "vegetables": "carrot onion potato cabbage bean pea leek beet".split(),
          "things in a kitchen": "spoon cup kettle plate bowl pan fork oven".split(),
          "kinds of weather": "rain snow wind fog sun hail frost thunder".split(),
          "instruments": "drum flute violin piano guitar trumpet harp bell".split()}
MONTHS = "January February March April May June July August September October November December".split()
WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen twenty").split()
WHY = [
    ("Why does it rain?", "The sun warms the [sea|water of lakes and seas] and some of it goes up as vapour. High in "
                          "the air it is cold, so the vapour turns into [small drops|clouds]. When the drops are [too "
                          "heavy|big enough], they fall. That is rain."),
    ("Why is there day and night?", "The earth turns around once in 24 hours. The side that [looks at|faces] the sun "
                                    "has day, and the other side has night."),
    ("How is bread made?", "[First|To begin,] you mix flour, water, salt and yeast. Then you knead the dough and let "
                           "it rest [for an hour|in a warm place]. When it has risen, you bake it in a hot oven until "
                           "the crust is [brown|golden]."),
    ("Why do birds fly south?", "In winter there is [little food|not much to eat] in the north. So many birds fly to "
                                "warmer countries and come back in spring."),
    ("What is a bridge?", "A bridge is a way over something, such as a river, a road or a valley. [It must carry its "
                          "own weight and the weight of all who cross it.|Some bridges are made of stone, some of "
                          "wood and some of steel.]"),
    ("Why does ice float?", "When water freezes it [takes more room|grows a little]. So ice is lighter than the same "
                            "amount of water, and it floats."),
    ("What does a lighthouse do?", "A lighthouse [sends light over the sea|stands on the coast and shines] at night, "
                                   "so that ships know where the rocks are."),
    ("How does a seed grow?", "A seed needs water, air and warmth. First a root grows down, then a [stem|small green "
                              "leaf] grows up to the light."),
    ("Why do we sleep?", "When we sleep, the body rests and the mind [sorts what it has learned|puts the day in "
                         "order]. Without sleep we become [tired and slow|cross and forgetful]."),
    ("What is a map?", "A map is a drawing of a place as [seen from above|a bird would see it]. It is much smaller "
                       "than the place, and it shows roads, rivers and towns."),
    ("Why is the sea salty?", "Rivers carry a little salt from the [rocks|land] into the sea. The water goes up again "
                              "as vapour, but the salt stays. [Over a very long time|In millions of years] it became "
                              "a lot."),
    ("What is an echo?", "An echo is sound that comes back. It [hits|meets] a wall or a mountain and returns, so you "
                         "hear your own voice [a moment later|again]."),
    ("How do bees make honey?", "Bees collect nectar from flowers and carry it to the hive. There they [dry it with "
                                "their wings|store it in small cells of wax] until it becomes thick and sweet."),
    ("Why do leaves fall in autumn?", "In autumn there is less light, and the tree [saves water|rests] for the "
                                      "winter. It takes back what it can from the leaves, they turn yellow or red, "
                                      "and then they fall."),
    ("What is a shadow?", "Light goes straight. Where something stands in its way, no light arrives, and that dark "
                          "place is the shadow. [In the evening shadows are long, because the sun is low.|At noon "
                          "shadows are short, because the sun is high.]"),
    ("Why do clocks have two hands?", "The short hand shows the hours and the long hand shows the minutes. The long "
                                      "hand goes around once in an hour, the short one in twelve hours."),
    ("How does a kettle whistle?", "The water boils and becomes steam. The steam has to go through a small hole, and "
                                   "[there it makes the air sing|that makes the sound]."),
    ("What is a computer program?", "A program is a list of [steps|instructions] that a computer follows one after "
                                    "the other. [It does exactly what is written, not what was meant.|If a step is "
                                    "wrong, the result is wrong too.]"),
    ("What is a library?", "A library is a house full of books. You may [read them there|borrow them and take them "
                           "home], and then you bring them back."),
    ("Why does the moon change its shape?", "The moon is always round, but we see only the part that the sun "
                                            "[lights|shines on]. As the moon goes around the earth, that part [grows "
                                            "and shrinks|changes] in about a month."),
    ("What is quantization?", "To quantize a number is to [round it to one of a few steps|keep fewer digits of it]. "
                              "The numbers then need less room, and a little [precision|detail] is lost."),
    ("How does a boat float?", "A boat pushes water aside. The water pushes back with a force as big as the weight of "
                               "the water that was moved. If the boat is [lighter than that|not too heavy], it floats."),
    ("Why do cats purr?", "Cats purr when they feel [safe and warm|well], and sometimes to calm themselves when they "
                          "are hurt."),
    ("What is a prime number?", "A prime number is a number greater than 1 that can be divided only by 1 and by "
                                "itself. The first ones are 2, 3, 5, 7, 11 and 13."),
]

ESSAYS = [
    "A [good|useful] list is short. If it is long, nobody reads it, and if nobody reads it, nothing on it gets done. "
    "[Write down three things in the morning|Put the hardest thing first]. When they are done, [you may write down "
    "three more|close the book and go for a walk].",
    "[People say that|It is said that] a cat has nine lives. Ours, [a grey one|an old black one], has used up at "
    "least four: one in the [well|chimney], one under a cart, one with the neighbour's dog and one [on the roof in a "
    "storm|in a box that was sent to the coast]. [She does not seem to count.|The other five she spends asleep.]",
    "To sharpen a knife you need a stone, some water and patience. Hold the blade [flat|at a small angle] and draw it "
    "over the stone in one long stroke. Turn it and do the same on the other side. [Ten strokes are enough for a "
    "kitchen knife.|Do not press; the stone does the work.] Then [wipe it dry|cut a tomato to see whether it is sharp].",
    "The old mill has three floors. On the ground floor [the sacks are filled|the flour comes out], on the second the "
    "stones turn, and at the top the grain goes in. [Everything falls down by itself, so the miller only has to carry "
    "the grain up once.|When the wheel turns, the whole house shakes.] The wheel is [four|five|six] metres high and "
    "needs [little water|a strong stream].",
    "There are two ways to walk to {spot}. The short one goes [over the hill|through the forest] and takes [half an "
    "hour|twenty minutes]; the long one follows the river and takes [an hour|twice as long]. [I take the short one "
    "when I am late and the long one when I want to think.|Children take the long one, because of the ducks.]",
    "Good tools are worth their price. A cheap saw [bends|is soon blunt], and then the cut is [crooked|slow] and the "
    "wood is spoiled. A good one lasts [thirty years|longer than its owner]. [Oil it in autumn, hang it in a dry "
    "place and do not lend it to {O}.|{O} still uses the saw of {ohis} grandfather.]",
    "A measurement is never exact. If you measure a table [twice|three times], you get [two|three] numbers that "
    "differ by a little. The [mean|middle] of many measurements is better than one of them, and it is honest to say "
    "how far they lie apart. [A number without its error is only half a number.|Who measures once believes; who "
    "measures twice knows.]",
    "In the harbour the day begins [at four|before the sun is up]. First come the fishers with [lamps|nets], then the "
    "gulls, then the cooks who want to choose the best fish. By eight the [ice is gone|boxes are empty] and the "
    "stones are washed with sea water. [Only the cats stay a little longer.|At nine you would not believe that "
    "anything had happened.]",
    "When you write a letter, think of the person who will read it. [Say first what matters most.|Begin with "
    "something kind.] Use short words where they will do, and [leave out what you would skip yourself|read it aloud "
    "before you send it]. [A page is enough.|Nobody has ever complained that a letter was too short, except {O}.]",
    "Snow is quiet because it is full of air. The sound goes in between the flakes and [does not find its way "
    "out|gets lost there]. [That is why a town sounds different on a winter morning.|When the snow melts and freezes, "
    "the quiet is over.] New snow is [lighter than flour|mostly air]: ten buckets of it give about one bucket of water.",
    "Every machine has parts that wear out. In a bicycle it is the chain, in a clock the spring, in a boat the "
    "[ropes|paint]. Who knows these parts and looks at them [once a month|in spring and in autumn] is seldom "
    "surprised. [The others learn about them in the rain.|It takes ten minutes and saves a day.]",
    "To remember a long number, cut it into pieces. Nobody can keep 4 9 2 7 1 8 3 5 in mind at once, but 49, 27, 18 "
    "and 35 are [only four things|easy]. [It helps to give every piece a picture.|Say them aloud while you walk, one "
    "piece for every step.]",
]


def fact(pen):
    """A question with a short and a full answer."""
    make = pen.pick([capital_of, opposite, sound, young, legs, colour_of, use, worker, next_day, next_month, member])
    return make(pen)


def capital_of(pen):
    country, city = pen.pick(list(CAPITALS.items()))
    if pen.chance(0.25):
        return f"Which country is {city} the capital of?", country, f"{city} is the capital of {country}."
    return f"What is the capital of {country}?", city, f"The capital of {country} is {city}."


def opposite(pen):
    a, b = pen.pick(list(OPPOSITES.items()))
    word = pen.pick([a, f'"{a}"'])
    return f"What is the opposite of {word}?", capital(b), f"The opposite of {a} is {b}."


def sound(pen):
    animal, verb = pen.pick(list(SOUNDS.items()))
    return f"What sound does {an(animal)} make?", f"It {verb}", f"{capital(an(animal))} {verb}."


def young(pen):
    animal, child = pen.pick(list(YOUNG.items()))
    return f"What is a young {animal} called?", f"A {child}", f"A young {animal} is called a {child}."


def legs(pen):
    animal, n = pen.pick(list(LEGS.items()))
    word = "no" if n == 0 else WORDS[n]
    return f"How many legs does {an(animal)} have?", str(n), f"{capital(an(animal))} has {word} legs."


def colour_of(pen):
    thing, colour = pen.pick(list(COLOUR_OF.items()))
    return f"What colour is {thing}?", capital(colour), f"{capital(thing)} is {colour}."


def use(pen):
    tool, verb = pen.pick(list(USES.items()))
    if pen.chance(0.4):
        return f"What do you need to {verb}?", capital(an(tool)), f"You need {an(tool)} to {verb}."
    return f"What is {an(tool)} for?", f"To {verb}", f"{capital(an(tool))} is used to {verb}."


def worker(pen):
    verb, who = pen.pick(list(WORKERS.items()))
    return f"Who {verb}?", capital(an(who)), f"{capital(an(who))} {verb}."


def next_day(pen):
    i = pen.number(0, 6)
    day, after = stories.DAYS[i], stories.DAYS[(i + 1) % 7]
    return f"What day comes after {day}?", after, f"After {day} comes {after}."


def next_month(pen):
    i = pen.number(0, 11)
    return f"Which month comes after {MONTHS[i]}?", MONTHS[(i + 1) % 12], f"{MONTHS[(i + 1) % 12]} comes after {MONTHS[i]}."


def member(pen):
    group, names = pen.pick(list(GROUPS.items()))
    number = pen.number(2, 5)
    got = pen.some(names, number, number)
    answer = capital(listing(got))
    return pen.fill(f"[Name|Tell me|Give me] {WORDS[number]} {group}."), answer, answer + "."


def why(pen):
    question, answer = pen.pick(WHY)
    return question, pen.fill(answer)


# ---- sums -------------------------------------------------------------------------------------------------------


def sum_of(pen):
    """Two numbers, a sign and the result."""
    sign = pen.pick("++--*")
    if sign == "*":
        a, b = pen.number(2, 10), pen.number(2, 10)
        return a, b, sign, a * b
    top = pen.pick([10, 20, 20, 50, 100])
    a, b = pen.number(1, top), pen.number(1, top)
    if sign == "-":
        a, b = max(a, b), min(a, b)
        return a, b, sign, a - b
    return a, b, sign, a + b


def sum_question(pen):
    a, b, sign, c = sum_of(pen)
    word = {"+": "plus", "-": "minus", "*": "times"}[sign]
    question = pen.pick([f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"How much is {a} {sign} {b}?",
                         f"{a} {sign} {b} = ?"])
    return question, pen.pick([str(c), f"{a} {sign} {b} = {c}", f"{a} {sign} {b} = {c}."])


def worksheet(pen):
    head = pen.pick(["Sums", "Sums for today:", "Arithmetic", f"Sums, page {pen.number(1, 40)}", "Exercises"])
    lines = ["{} {} {} = {}".format(a, sign, b, c) for a, b, sign, c in (sum_of(pen) for _ in range(pen.number(4, 10)))]
    if pen.chance(0.4):
        lines = [f"{i}. {line}" for i, line in enumerate(lines, 1)]
    return head + "\n" + "\n".join(lines)


def problem(pen):
    """A little word problem: the text, the calculation and the answer."""
    v = stories.cast(pen)
    v.update(a=pen.number(2, 15), b=pen.number(2, 9))
    text, calculation, answer = [gain, loss, boxes, share, change, walk][pen.number(0, 5)](pen, v)
    return pen.fill(text, v), calculation, pen.fill(answer, v)


def counted(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def gain(pen, v):
    a, b = v["a"], v["b"]
    return ("{N} has {a} {food}. {M} gives {him} {b} more. How many {food} does {N} have [now|in the end]?",
            f"{a} + {b} = {a + b}", f"{{N}} has {a + b} {{food}}.")


def loss(pen, v):
    left, b = v["a"], v["b"]
    v["a"] = a = left + b
    return ("{N} [had|picked|bought] {a} {food} and [gave {b} to {M}|ate {b} of them|lost {b} on the way]. "
            "How many {food} are left?",
            f"{a} - {b} = {left}", f"[There are {left} {{food}} left.|{left} {{food}} are left.]")


def boxes(pen, v):
    v["a"] = a = pen.number(2, 9)
    b = v["b"]
    return ("There are {a} [baskets|boxes|bags] with {b} {food} in each. How many {food} are there [in all|altogether]?",
            f"{a} * {b} = {a * b}", f"There are {a * b} {{food}}.")


def share(pen, v):
    v["a"] = a = pen.number(2, 9)
    b = v["b"]
    return (f"{{N}} and {{his}} friends share {a * b} {{food}}. There are {{a}} of them. How many does each one get?",
            f"{a * b} / {a} = {b}", "Each one gets {b} {food}.")


def change(pen, v):
    price, paid = pen.number(2, 19), 20
    v["item"] = capital(an(v["thing"]))
    return (f"{{item}} costs {price} coins. {{N}} pays with a note of {paid}. How much does {{he}} get back?",
            f"{paid} - {price} = {paid - price}", f"{{^he}} gets back {counted(paid - price, 'coin')}.")


def walk(pen, v):
    hour, gone = pen.number(1, 8), pen.number(1, 4)
    return (f"{{N}} leaves {{spot}} at {hour} o'clock and walks for {counted(gone, 'hour')}. When does {{he}} arrive?",
            f"{hour} + {gone} = {hour + gone}", f"{{^he}} arrives at {hour + gone} o'clock.")


def problem_text(pen):
    question, calculation, answer = problem(pen)
    return f"{question} {calculation}. {answer}"


def numbers(pen):
    """A question about numbers that needs a look, not a sum."""
    form = pen.number(0, 5)
    if form == 0:
        a, n = pen.number(1, 40), pen.number(4, 9)
        row = ", ".join(map(str, range(a, a + n)))
        return f"Count from {a} to {a + n - 1}.", row + "."
    if form == 1:
        step, a, n = pen.pick([2, 5, 10]), pen.number(0, 5), pen.number(4, 8)
        row = [step * (a + i) for i in range(n)]
        return f"Count in steps of {step} from {row[0]} to {row[-1]}.", ", ".join(map(str, row)) + "."
    if form == 2:
        a, b = pen.some(range(1, 100), 2, 2)
        return f"Which is more, {a} or {b}?", f"{max(a, b)} is more than {min(a, b)}."
    if form == 3:
        a = pen.number(1, 60)
        return f"Is {a} even or odd?", f"{a} is {'odd' if a % 2 else 'even'}."
    if form == 4:
        row = pen.some(range(1, 30), 4, 5)
        return f"Sort these numbers: {', '.join(map(str, row))}.", ", ".join(map(str, sorted(row))) + "."
    a = pen.number(0, 20)
    return f"Write {a} as a word.", capital(WORDS[a]) + "."


# ---- plain documents ----------------------------------------------------------------------------------------------


def quiz(pen):
    """Several questions with answers."""
    lines = []
    for _ in range(pen.number(2, 6)):
        form = pen.number(0, 9)
        question, *answers = fact(pen) if form < 6 else sum_question(pen) if form < 8 else numbers(pen)
        lines += ["Q: " + question, "A: " + answers[-1]]
    return "\n".join(lines)


def statements(pen):
    """Facts as sentences, as in a school book."""
    lines = [fact(pen)[2] for _ in range(pen.number(3, 6))]
    return pen.fill("[|Some facts: |Did you know? |From the school book: ]") + " ".join(lines)


def explanation(pen):
    question, answer = why(pen)
    form = pen.number(0, 3)
    if form == 0:
        return question + "\n" + answer
    if form == 1:
        return answer
    v = stories.cast(pen)
    ask = pen.fill("\"{q}\" asked {N}[ one day| on the way to {spot}|]. ", dict(v, q=question))
    says = pen.fill("[{O} [thought for a while|put down the newspaper|smiled].|\"That is a good question,\" said "
                    "{O}.] ", v)
    end = pen.fill(" [\"I see,\" said {N}.|{N} thought about it all day.|\"Now I understand,\" said {N}.|\"Are you "
                   "sure?\" asked {N}. \"Quite sure,\" said {O}.]", v)
    return ask + says + "\"" + answer + "\"" + end


def essay(pen):
    return pen.fill(pen.pick(ESSAYS), stories.cast(pen))


def lesson(pen):
    """A dialogue about a fact or a sum."""
    v = stories.cast(pen)
    question, short, full = problem(pen) if pen.chance(0.4) else fact(pen)
    v.update(q=question, s=short, f=full)
    return pen.fill("\"{q}\" asked {O}.\n[\"I don't know,\" said {N}.|{N} thought for a while.|\"That is easy,\" said "
                    "{N}.]\n"
                    "[\"{s}!\" [cried|called|said] {M}.|\"{f}\" said {M}.|{M} wrote the answer on the board: {s}]\n"
                    "[\"Right,\" said {O}.|\"Very good,\" said {O}. \"{f}\"|\"That is right, {M},\" said {O}, and "
                    "everyone clapped.]", v
                    ).replace(".\" said", ",\" said").replace(".\" asked", ",\" asked")


# ---- chats --------------------------------------------------------------------------------------------------------

HELLO = ["Hello!", "Hi.", "Good morning.", "Hello, who are you?", "Hi there!", "Good evening."]
WELCOME = ["Hello! How can I help?", "Good day! What would you like to know?", "Hello! Shall I tell you a story?"]
MANNERS = ["You are a friendly helper.", "You are a teacher.", "Be short and kind.", "You tell the truth."]
ABOUT = [
    ("Who are you?", "I am the demo model of lq, a very small one. I know little stories, easy sums and some facts."),
    ("What can you do?", "I can [tell little stories|tell a story], answer [simple|easy] questions and do small sums."),
    ("How big are you?", "I am very small: about 1.3 million parameters."),
    ("Thank you!", "[You are welcome.|You are welcome!|It was a pleasure.]"),
    ("Goodbye.", "Goodbye! [Come again.|Have a nice day.|Until next time.]"),
    ("How are you?", "[I am well, thank you. And you?|Very well, thank you. How can I help?]"),
    ("Tell me a joke.", "[Why did the clock go to school? It wanted to be on time.|What has a neck but no head? A "
                        "bottle.|Why was the book sad? It had too many problems, it was about sums.|What runs but has "
                        "no legs? A river.]"),
    ("I am bored.", "[Shall I tell you a story?|Take a walk and count the birds. Or shall I tell you a story?]"),
    ("I can't sleep.", "[Close your eyes and count the sheep: one, two, three, four, five.|Drink some warm milk. "
                       "Shall I tell you a quiet story?]"),
]


def request_story(pen):
    """A request that names the hero, and the story about just that hero."""
    v = stories.cast(pen)
    please = pen.pick(["Tell me a story about", "Write a story about", "Please tell me a story about",
                       "I would like a story about", "Write a short story about", "Can you tell me a story about"])
    who = pen.fill(pen.pick(["{a} {kind} named {N}", "{a} {kind} called {N}", "{N} the {kind}", "{N} and {M}",
                             "{a} {kind}"]), v)
    mark = "?" if please.startswith("Can") else "."
    return f"{please} {who}{mark}", stories.story(pen, v)


def repeat(pen):
    word = pen.pick(stories.THINGS + stories.COLOURS + stories.PETS)
    times = pen.number(2, 5)
    if pen.chance(0.5):
        return f"Say {word} {WORDS[times]} times.", " ".join([word] * times)
    return f"Repeat after me: {word}", word


def as_json(pen):
    v = stories.cast(pen)
    age = pen.number(3, 90)
    return (pen.fill(f"Write as JSON: {{N}} the {{kind}}, {age} years old, lives near {{spot}}.", v),
            '{"name": "%s", "kind": "%s", "age": %d, "home": "%s"}' % (v["N"], v["kind"], age, v["spot"]))


def exchange(pen):
    form = pen.number(0, 19)
    if form < 6:
        question, short, full = fact(pen)
        return question, full if pen.chance(0.8) else short + "."
    if form < 10:
        return sum_question(pen)
    if form < 12:
        text, calculation, answer = problem(pen)
        return text, calculation + ". " + answer
    if form < 14:
        return numbers(pen)
    if form < 16:
        return why(pen)
    if form < 17:
        return repeat(pen)
    if form < 18:
        return as_json(pen)
    question, answer = pen.pick(ABOUT)
    return question, pen.fill(answer)


def chat(pen):
    """One to four exchanges; sometimes a system line that asks for one word, and gets it."""
    turns = []
    if pen.chance(0.12):
        turns.append(("system", pen.pick(["Answer with one word.", "Use one word only.", "One word, please."])))
        for _ in range(pen.number(1, 3)):
            question, short, _ = pen.pick([capital_of, opposite, colour_of, next_day, next_month])(pen)
            turns += [("user", question), ("assistant", short)]
        return turns
    if pen.chance(0.1):
        turns.append(("system", pen.pick(MANNERS)))
    if pen.chance(0.15):
        turns += [("user", pen.pick(HELLO)), ("assistant", pen.pick(WELCOME))]
    for _ in range(pen.pick([1, 1, 1, 2, 2, 3, 4])):
        question, answer = exchange(pen)
        turns += [("user", question), ("assistant", answer)]
    return turns


def chat_story(pen):
    question, answer = request_story(pen)
    turns = [("user", question), ("assistant", answer)]
    if pen.chance(0.2):
        turns += [("user", pen.pick(["Thank you!", "Thank you, that was nice.", "I like it. Thank you!"])),
                  ("assistant", pen.pick(["You are welcome.", "You are welcome! Shall I tell another one?"]))]
    return turns


MAKERS = [(7, quiz), (4, statements), (8, explanation), (8, essay), (5, lesson), (7, worksheet), (7, problem_text),
          (36, chat), (10, chat_story)]
