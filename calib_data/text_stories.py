"""Stories of the text generator: who, where, what is wanted, what stands in the way, who helps, how it ends."""
from text_pen import HE, SHE, capital, person

GIRLS = ("Ada Mira Lena Nora Tilda Ines Rosa Wren Hanna Ivy Petra Salma Yuki Zora Clara Edith Fern Greta Juno Kaia "
         "Lotta Maren Nell Odile Priya Runa Sunna Thea Una Vera").split()
BOYS = ("Tom Emil Jonas Oskar Piet Ravi Sam Theo Arlo Bram Cato Dario Elias Finn Goran Hugo Ivo Jasper Kofi Leo Milo "
        "Nils Otto Pavel Ruben Silas Tariq Ulf Viktor Yann").split()
PETS = ("Pim Bramble Dot Fidget Moss Pepper Pip Quill Rusty Soot Tansy Thimble Tuft Biscuit Button Clover Crumb Dapple "
        "Hazel Nutmeg").split()
ANIMALS = "fox hare mouse badger otter hedgehog squirrel owl crow duck goat frog mole bear cat dog hen robin".split()
JOBS = ("baker gardener fisher carpenter teacher painter tailor farmer miller clockmaker ferryman shepherd potter "
        "librarian cook beekeeper musician lamplighter").split()
ELDERS = [("Mrs Alder", SHE), ("Mr Finch", HE), ("old Marta", SHE), ("old Bertil", HE), ("Aunt Ilse", SHE),
          ("Uncle Jo", HE), ("Grandmother", SHE), ("Grandfather", HE), ("the ferryman", HE), ("the baker", SHE),
          ("the night watchman", HE), ("the librarian", SHE), ("Mrs Okoro", SHE), ("Mr Lindqvist", HE)]
PLACES = ("village by the sea|small town on a hill|house at the edge of the forest|valley between two mountains|"
          "street with tall grey houses|house beside a slow river|harbour full of boats|cottage near the mill|"
          "town with a crooked tower|lane behind the market").split("|")
SPOTS = ("the old bridge|the market|the mill|the harbour|the library|the well|the big oak|the bakery|the station|"
         "the top of the hill|the edge of the forest|the river bank|the school gate|the lighthouse|"
         "the garden wall").split("|")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COLOURS = "red blue green yellow white black brown grey orange silver".split()
THINGS = ("kite lantern drum basket bell boat book button coat cup hat key kettle map spoon umbrella wheel whistle "
          "bucket blanket chair clock scarf ladder").split()
FOODS = "apples pears plums carrots buns cherries nuts eggs potatoes onions lemons figs".split()
WEATHER = ("The sun [shone|was warm|stood high in the sky].|It was raining [softly|hard].|"
           "A cold wind [blew from the north|came down from the hills].|Snow [lay on the roofs|was falling quietly].|"
           "The fog was [thick|as white as milk].|The sky was [grey|clear and blue|full of small clouds].|"
           "The air smelled of [rain|bread|smoke|cut grass|the sea].")


def weather(pen):
    return pen.fill(pen.pick(split_top(WEATHER)))


def split_top(text):
    """Splits at the bars that stand outside of brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c == "[") - (c == "]")
        if c == "|" and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return parts + [part]


def cast(pen):
    """A hero, a friend and an elder, with all that the templates below may ask for."""
    v = {}
    animal = pen.chance(0.35)
    for prefix in ("", "m"):
        she = pen.chance(0.5)
        taken = v.get("N")
        pool = PETS if animal else GIRLS if she else BOYS
        name = pen.name([n for n in pool if n != taken])
        v.update(person(prefix, name, SHE if she else HE))
        kind = pen.pick(ANIMALS) if animal else pen.pick(JOBS) if pen.chance(0.3) else v[prefix + "boy"]
        v[prefix + "kind"] = kind
    if v["kind"] == v["mkind"] and animal:
        v["mkind"] = pen.pick([a for a in ANIMALS if a != v["kind"]])
    elder, words = pen.pick(ELDERS)
    v.update(person("o", elder, words))
    spots = pen.some(SPOTS, 3, 3)
    v.update(place=pen.pick(PLACES), spot=spots[0], spot2=spots[1], spot3=spots[2], day=pen.pick(DAYS),
             colour=pen.pick(COLOURS), colour2=pen.pick(COLOURS), thing=pen.pick(THINGS), food=pen.pick(FOODS))
    v["k"], v["n"] = pen.number(2, 9), pen.number(3, 30)
    v["n2"] = v["k"] + v["n"]
    v["a"] = "an" if v["kind"][0] in "aeiou" else "a"
    v["ma"] = "an" if v["mkind"][0] in "aeiou" else "a"
    v["acolour"] = ("an " if v["colour"][0] in "aeiou" else "a ") + v["colour"]
    return v


OPENINGS = [
    "[Once upon a time|Once upon a time|Long ago|Once|Not long ago|Many years ago] there was {a} {kind} "
    "[named|called] {N}, who lived in a {place}.",
    "{N} was {a} [young|clever|quiet|curious|brave|careful|cheerful] {kind}. {^he} lived in a {place}[.| with {his} "
    "friend {M}.]",
    "In a {place} lived {a} {kind} [named|called] {N}.",
    "[On|One] {day} [morning|evening|afternoon] {N} the {kind} [woke up early|sat by the window|opened the door and "
    "looked out|was walking past {spot}].",
    "There was once {a} {kind} [named|called] {N}. [Everyone in the {place} knew {him}.|{^his} best friend was {M}, "
    "{ma} {mkind}.|{^he} liked [long walks|quiet mornings|warm soup|good stories].]",
    "This is the story of {N}, {a} {kind} who [never gave up|was afraid of the dark|liked to count things|could not "
    "sit still|always told the truth].",
]

# Each quest: what is wanted, what goes wrong, how help comes, how it ends.
QUESTS = [
    ("{N} wanted [to build|to make] a kite for the spring fair. {^he} had paper and [string|thin sticks of wood], but "
     "{he} had no [glue|tail for it].",
     "[The first kite fell into the river.|The first kite was too heavy and would not rise.|The wind took the first "
     "kite and it landed in a tree.]",
     "{M} came by and said, \"[Make it lighter|Use thinner sticks|A kite needs a long tail], and then we will try "
     "again.\" So they [cut the sticks thinner|tied {colour} ribbons to the tail|glued the paper once more] and "
     "waited for the wind.",
     "[At last the kite rose|This time the kite climbed] over the roofs, [as high as the birds|higher than the "
     "tower], and {N} laughed [with joy|out loud]."),
    ("{N} had lost {his} {colour} {thing}. {^he} looked under the bed, behind the door and [in the garden|in the "
     "kitchen|on the roof], but it was not there.",
     "[\"I had it on {day},\" {he} said. \"Where can it be?\"|{^he} asked [at|everyone near] {spot}, but nobody had "
     "seen it.|The more {he} looked, the less {he} found.]",
     "[Then {M} asked, \"Where did you use it last?\"|\"Let us walk the same way back,\" said {M}.] {N} thought for a "
     "while. \"[At|Near] {spot2}!\" {he} cried. They [ran|went|hurried] there together.",
     "And there it was: the {colour} {thing} lay [in the grass|on a stone|under a bench|beside the path], [a little "
     "wet but not broken|just where {he} had left it]. {N} [held it tight|thanked {M}|carried it home]."),
    ("{N} was hungry, and there was only [a little flour|one old onion|half a loaf of bread] in the house. {^he} "
     "wanted to make soup [for {himself} and {M}|for the whole street].",
     "But a soup needs more than [water|salt and water]. \"[I have nothing to put in it|What can I do?]\" said {N}.",
     "{M} brought [two carrots|some beans|a cabbage], {O} brought [salt and pepper|three potatoes|a bunch of herbs], "
     "and a neighbour brought [a bone|an egg|mushrooms from the forest].",
     "Soon the pot was full and [the whole house smelled good|the windows were white with steam]. Everyone had [two "
     "bowls|a full bowl], and [nobody went home hungry|there was even some left for the cat]."),
    ("One night {N} heard a strange noise [under the floor|on the roof|behind the wall|in the chimney]. [Tap, tap, "
     "tap.|It went bump, and then it was quiet.|It sounded like someone counting.]",
     "{^he} pulled the blanket over {his} head. [But the noise did not stop.|\"Who is there?\" {he} whispered, but no "
     "one answered.]",
     "In the morning {he} told {M}. \"[Don't be afraid|Let us look together],\" said {M}, and lit a lantern. They "
     "[climbed the ladder|went down the stairs|opened the little door] [very slowly|step by step].",
     "It was only [a bird with a broken wing|a loose board in the wind|a kitten in a box|an old clock that had begun "
     "to tick again]. [They laughed for a long time.|\"So that is my ghost,\" said {N}.|From then on {N} slept well.]"),
    ("{N} wanted to see [the sea|the other side of the mountain|where the river begins]. Nobody {he} knew had ever "
     "been there.",
     "The way was long. On the first day it rained, on the second day the path ended at [a wall of rock|a deep "
     "ditch|a field of thorns], and on the third day [{his} bread was gone|{his} shoes were full of holes].",
     "At {spot} {he} met {O}. \"[Follow the water|Keep the sun on your left side|Take my stick and my map],\" said "
     "{O}, \"and [don't leave the path|rest when you are tired|you will be there by evening].\"",
     "[That evening|When the sun went down] {N} stood there and [looked for a long time|did not say a word]. It was "
     "[bigger than any story|more beautiful than {he} had hoped]. Then {he} went home and told {M} everything."),
    ("Every year there was a race from {spot} to {spot2}. {N} had never won, [and|but] this year {he} wanted to try "
     "again.",
     "{N} ran [as fast as {he} could|well at the start]. But halfway {he} saw {M}, who had [fallen and hurt {mhis} "
     "foot|lost a shoe in the mud|stopped because {mhe} could not breathe].",
     "{N} [stopped|turned back]. \"[Lean on me|Take my hand],\" {he} said. \"[A race is only a race.|We will finish "
     "together.]\"",
     "They came in last, but [everyone clapped|the people cheered louder than for the winner]. \"[You have won "
     "something better,\"|That was the best run of the day,\"] said {O}."),
    ("{N} found a [small|tiny|round] {colour} seed on the road near {spot}. \"[I will plant it|What will it "
     "become?]\" {he} said, and put it in a pot.",
     "{^he} gave it water every day, but for [two weeks|a long time] nothing happened. \"[Perhaps it is only a "
     "stone|Maybe it is asleep],\" said {M}.",
     "\"[Give it time|It needs more sun|Be patient],\" said {O}. So {N} put the pot [in the window|on the warm side "
     "of the house] and waited.",
     "One morning a green leaf looked out of the earth. [By summer it was taller than {N}|In autumn it carried "
     "{colour2} flowers|A year later it was a little tree], and {N} gave [a seed of it to everyone who asked|the "
     "first flower to {M}]."),
    ("The clock [in the tower|at the station] had stopped, and {N} wanted to repair it. Without the clock nobody knew "
     "when [to open the shops|the school began|to eat lunch].",
     "Inside there were [a hundred wheels|more wheels than {he} could count]. {N} turned one, and [another fell "
     "out|dust came down like snow|nothing moved].",
     "{M} held the lamp and {N} looked at every wheel. \"[Here!|Look!]\" said {M}. \"A [feather|small stone|nut] is "
     "stuck between these two.\"",
     "{N} took it out [with two fingers|with a long needle]. Tick, said the clock, and then tock. [The whole town set "
     "its watches|At noon it rang twelve times], and {N} [went home with black hands and a smile|was very proud]."),
    ("A new neighbour moved in next to {N}. It was {M}, {ma} {mkind}, [who did not know anyone|who came from far "
     "away]. {N} wanted to say hello but {he} was [too shy|afraid to disturb].",
     "[Each day {he} went to the door, and each day {he} went back.|{^he} wrote a letter and then hid it in a drawer.]",
     "Then {O} gave {N} [too many plums|a cake that was too big for one]. \"[You can't eat all that alone,\"|Share it "
     "with somebody,\"] said {O}.",
     "So {N} knocked. The door opened at once. \"[I wanted to say hello too,\" said {M}, \"but I was shy.\"|Come "
     "in,\" said {M}. \"I have just made tea.\"] [They have been friends ever since.|They talked until the stars came "
     "out.]"),
    ("The little bridge [over the stream|near the mill] was broken, and {N} could not [visit {M}|get to the market] "
     "any more.",
     "{N} put a board across the water, but [it was too short|it broke in the middle|the stream carried it away].",
     "\"One board is weak, but [three boards are strong|many ropes can carry it],\" said {O}. {M} came from the other "
     "side with [a hammer|nails|a long rope], and they worked [all day|until dark].",
     "When it was done, {N} and {M} met [in the middle|on the new bridge] and shook hands. [It is still there "
     "today.|Even a cart could cross it now.]"),
    ("{N} had a boat, but [it had a hole|the sail was torn]. {^he} dreamed of [catching a big fish|sailing to the "
     "island].",
     "When {he} pushed it into the water, [it filled at once|it turned in circles]. [Wet and cold|With wet feet], {N} "
     "pulled it back to the shore.",
     "{M} brought [tar and an old cloth|needle and thread|a good board]. \"[My grandfather showed me how|It is easy "
     "when there are two of us],\" {mhe} said.",
     "On {day} the boat [went out of the harbour|sailed around the island], and it was as dry as a [biscuit|bone]. "
     "{N} caught [three fish|nothing but an old boot], and both of them [were happy|laughed all the way home]."),
    ("It was {M}'s birthday and {N} had no money for a present. {^he} had only {food} and [a piece of string|an empty "
     "box|some paper].",
     "\"[A present must be bought in a shop|Everyone else will bring something better],\" {he} thought, and [felt "
     "sad|walked up and down].",
     "{O} smiled. \"[The best present is one that you make yourself|What is {mhe} always wishing for?],\" {ohe} said. "
     "{N} sat down and [thought|worked] the whole evening.",
     "The next day {N} gave {M} [a book with drawings of all their walks|a song with {mhis} name in it|a lamp made of "
     "paper]. {M} [did not say anything for a while|smiled]. \"[I like this one best|I will keep it for ever],\" "
     "{mhe} said."),
    ("One winter the snow was so high that [nobody could open the door|the paths were gone]. {N} wanted to bring "
     "[bread|wood|medicine] to {O}, who lived alone.",
     "After [ten|twenty] steps {he} was [up to the knees|stuck] in snow. [It was getting dark.|The wind blew out "
     "{his} lantern.]",
     "\"Wait!\" called {M}. {^mhe} came with [a sledge|two flat boards to tie under the shoes|a shovel]. One of them "
     "pulled and the other pushed.",
     "{O} opened the door and [there was a fire and hot tea|{ohis} eyes were wet]. \"[I knew that somebody would "
     "come|You must be frozen],\" {ohe} said, and they [stayed|told stories] until morning."),
    ("{N} had never told a lie, but on {day} {he} broke [the {colour} cup|a window|the good plate] and [hid the "
     "pieces|said nothing].",
     "All day {he} [could not eat|had a stone in {his} stomach]. At night {he} could not sleep.",
     "\"[What is the matter?|You look pale],\" said {M}. So {N} told {mhim}. \"[Say it, and it will be lighter|It is "
     "only a thing],\" said {M}.",
     "{N} went to {O} and told the truth. \"[Thank you for telling me,\" said {O}. \"Let us mend it together.\"|Cups "
     "can be glued,\" said {O}, \"but trust is harder to mend.\"] That night {N} slept [very well|like a stone]."),
    ("{N} wanted to learn to [swim|whistle|play the drum|read the stars|bake bread]. \"[It can't be so hard|I will "
     "know it by {day}],\" {he} said.",
     "It was hard. [The first day went badly, and the second was worse.|Everyone who heard or saw it shook their "
     "heads.|{^he} tried a hundred times.]",
     "{O} [watched for a while|sat down beside {him}]. \"[Slowly,\"|Once more, but slower,\"|Do one small thing at a "
     "time,\"] {ohe} said, and showed {him} how.",
     "After [a month|many weeks] {he} could do it. [Then {M} asked, \"Can you teach me?\" And {N} said, \"Slowly. One "
     "small thing at a time.\"|\"You see,\" said {O}, \"it only needed time.\"]"),
    ("A [big|dark] cloud sat over the {place}, and it would not rain. The fields were dry, and {N} worried about [the "
     "beans|the young trees].",
     "[{N} carried water from the well, bucket after bucket, until the well was empty too.|Some people shouted at the "
     "cloud. Others sang to it. Nothing helped.]",
     "\"Perhaps it is [sad|shy|stuck],\" said {M}. They climbed to the top of the hill, and {N} [told the cloud a "
     "joke|asked the cloud what was wrong|gave the cloud a little push with a broom].",
     "The cloud [began to shake|sighed]. One drop fell, then ten, then more than anyone could count. [{N} and {M} ran "
     "home, wet to the skin|Everybody danced in the street], and the [beans|trees] grew again."),
    ("{N} kept [three hens|five hens|a goat|two geese]. Every evening {he} counted them, and on {day} [one was "
     "missing|the gate stood open].",
     "{N} [looked behind the barn|called and called], but there was no answer, and the forest was dark.",
     "{M} found [a feather|small tracks in the mud]. \"This way,\" {mhe} said. They followed the [tracks|signs] past "
     "{spot} and around {spot2}.",
     "In the end they heard [a soft noise|a sneeze] from [a hollow tree|an old barrel|under a cart]. [She had made a "
     "nest there, with four eggs in it.|\"There you are!\" said {N}, and carried the runaway home.]"),
    ("{N} and {M} both wanted the same {thing}. \"[I saw it first|It is mine],\" said {N}. \"No, [I did|it is "
     "mine],\" said {M}.",
     "They pulled, and [it broke in two|it fell into the mud|it tore in the middle]. [Now nobody had it.|They were "
     "both quiet.]",
     "{O} [came along|had seen it all]. \"[Half of it is no use to anyone|It took two to break it],\" {ohe} said. "
     "\"[It will take two to mend it.|What now?]\"",
     "So they mended it together. From then on {N} had it on [Mondays|even days] and {M} on [Tuesdays|odd days], and "
     "on Sundays [they used it together|{O} had it]."),
]

QUESTS += [
    ("{N} had [a cold|a sore throat] and had to stay in bed. [Outside the others were playing.|It was the first warm "
     "day of the year.]",
     "\"[How dull it is|I will miss everything],\" {he} said, and looked at the [ceiling|wall]. [There was a crack in "
     "it like a river.|A fly walked from one end to the other.]",
     "Then there was a knock. It was {M} with [a pot of soup|a book|a basket of {food}]. \"[If you can't come out, "
     "the day must come in|I thought you might be hungry],\" {mhe} said, and opened the window.",
     "They [read until evening|played cards|told each other stories]. [By {day} {N} was well again.|{N} almost forgot "
     "to cough.]"),
    ("{O} gave {N} an old map with a cross on it. \"[There is a treasure|Something is buried there],\" {ohe} said. "
     "The cross stood [right behind {spot}|between {spot} and {spot2}].",
     "{N} dug [one hole, then two, then five|until {his} hands hurt], but found only [stones|worms and roots|a rusty "
     "nail].",
     "\"[You hold the map upside down|North is up],\" said {M}, and turned it around. They went to the other side and "
     "dug again. [Clonk!|Then the spade hit something hard.]",
     "It was a box, and in the box lay [a letter|a note and two spoons|a small bell]. \"The treasure is [the garden "
     "that you have dug|the friend who digs with you],\" it said. [So they planted potatoes.|They laughed and kept "
     "the box.]"),
    ("{N} worked [in the library|at the bakery|at the post office]. One [morning|evening] a parcel stood there "
     "[without a name|with no address]. It was [warm|light] and something inside it [ticked|moved].",
     "\"[Don't open it|It is not ours],\" said {M}. But {N} [could think of nothing else|put an ear to it]. [Scratch, "
     "scratch.|Tick, tick.]",
     "In the end {he} asked {O}. \"[I know this string|This paper comes from the harbour],\" said {O}. So they "
     "carried the parcel [to the harbour|from door to door].",
     "It belonged to [a captain|an old woman|a little boy], who had been looking for it [for days|everywhere]. Inside "
     "was [a young bird|a clock made of wood|a tortoise]. {N} got [a coin|a big hug|a slice of cake] and was happy."),
    ("The lamp in the lighthouse went out, and {N} saw [a ship|two boats] far out in the dark. [The rocks were "
     "close.|A storm was coming.]",
     "{N} ran up the stairs, [all two hundred of them|two at a time], but there was no [oil|match] left. \"[What "
     "now?|Think, {N}, think!]\" {he} said.",
     "{M} [came up behind {him}|was already there] with [a basket of dry wood|all the mirrors of the house|a drum]. "
     "They made [a fire on the rocks|all the light and noise they could].",
     "The [captain|ships] saw it and turned in time. In the morning [the sailors brought them fish|the whole {place} "
     "thanked them], and {O} filled the lamp [up to the top|with enough oil for a year]."),
    ("{N} had saved {n} coins for a new {thing}. It stood in the window of the shop, {colour} and shining, and it "
     "cost {n2} coins.",
     "So {k} coins were missing. {N} [swept the yard of {O}|carried bags at the market|sold {food}] and got {k} coins "
     "for it.",
     "On the way to the shop {he} met {M}, who was [crying|very quiet]. {^mhe} had lost the money for [bread|the "
     "bus|the doctor]. {N} [thought for a moment|looked at the coins], and gave {mhim} {k} of them.",
     "The next [day|week] a parcel stood at the door of {N}. In it was the {colour} {thing}, and a note: \"[For a "
     "friend|With thanks],\" it said. [Nobody ever knew who had sent it.|{N} knew the handwriting of {O}.]"),
    ("There was going to be a concert [at {spot}|on {day}], and {N} was to play the [drum|flute|violin]. {^he} had "
     "practised [for weeks|every evening].",
     "But when {he} saw all the people, {his} [hands shook|knees went soft]. \"[I have forgotten everything|I "
     "can't],\" {he} whispered.",
     "{M} sat in the first row and [smiled|waved|held up the {colour} {thing} to make {him} laugh]. \"[Play it for "
     "me|Just begin with the first note],\" {mhe} said.",
     "{N} closed {his} eyes and played. [One note was wrong, but nobody minded.|It was quiet in the hall, and then "
     "they clapped.] \"[Again!|More!]\" called {O}."),
    ("Nobody in the {place} could sleep, because [something howled|a door banged|someone sang] all night. \"[I will "
     "find out who it is|This must stop],\" said {N}.",
     "{^he} took a lantern and [went from house to house|waited behind {spot}]. [At midnight it began.|It came from "
     "{spot2}.]",
     "There sat [a big dog|a small bear|a young owl], all alone. \"[I am not angry|I only make noise because it is so "
     "quiet],\" it seemed to say. {M} said, \"[It is lonely|It only wants company].\"",
     "From then on [{N} and {M} went there every evening|somebody always came by], and the nights were quiet. [Only "
     "the clock went on ticking.|Everybody slept until eight.]"),
]
MIDDLES = [
    "\"[What are you doing?|Are you all right?|Can I help?]\" asked {M}. \"[Not yet|I am thinking|You will see|Yes, "
    "please],\" said {N}.",
    "{N} [sighed|shook {his} head|sat down on a stone|took a deep breath]. \"[I will not give up|There must be a "
    "way|Tomorrow I will try again],\" {he} said.",
    "{M} [shared a piece of bread with {him}|patted {him} on the shoulder|smiled and said nothing].",
    "[The hours went by.|An hour passed, and then another.|It took longer than {he} had thought.]",
    "",
    "",
]
ENDINGS = [
    "And that was [the end of it|that].", "[That evening|Later] {N} [slept very well|wrote it all down|told the story "
                                          "to everyone].",
    "\"[Good friends are worth more than gold|Two heads are better than one|Slow and steady is fast enough],\" said "
    "{O}.",
    "{N} never forgot that day.", "From then on [{N} and {M} did everything together|{N} was never afraid to ask for "
                                  "help].",
    "The end.", "", "", "",
]


FRIENDS = ["{^his} [best friend|neighbour] was {M}, a [young|kind|tall|small|clever] {mkind}.",
           "{N} had a friend, {M} the {mkind}.",
           "{^he} often met {M}, a [young|kind|quiet] {mkind} who [lived next door|liked the same games|knew many "
           "songs]."]


def story(pen, v=None):
    v = v or cast(pen)
    want, trouble, turn, end = pen.pick(QUESTS)
    stranger = "moved in" in want
    opening = pen.pick([o for o in OPENINGS if not stranger or "{M}" not in o])
    parts = [opening, weather(pen) if pen.chance(0.35) else "", want]
    known = "{M}" in opening + want + trouble
    if not known and pen.chance(0.75):
        parts.insert(1, pen.pick(FRIENDS))
        known = True
    parts += [trouble, pen.pick([m for m in MIDDLES if known and not stranger or "{M}" not in m]), turn, end]
    parts = [p for p in parts + [pen.pick([e for e in ENDINGS if "{O}" not in end or "{O}" not in e])] if p]
    text = parts[0]
    for i, p in enumerate(parts[1:], 1):
        text += ("\n" if p in (trouble, end) and pen.chance(0.3) else " ") + p
    return pen.fill(text, v).replace("?,\"", "?\"").replace("!,\"", "!\"")


def titled(pen):
    v = cast(pen)
    title = pen.fill("[The Story of {N}|{N} and {M}|{N} the {Kind}|A Day with {N}|How {N} Learned Something]",
                     dict(v, Kind=capital(v["kind"])))
    return title + "\n" + story(pen, v)


MAKERS = [(24, story), (4, titled)]
