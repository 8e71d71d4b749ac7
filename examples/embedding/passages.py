"""1,000 short passages about 50 subjects, 20 each, made by rule: the same on every machine."""

SUBJECTS = {
    "bread": "dough yeast flour oven crust loaf knead rise bake sourdough",
    "rivers": "current bank flood delta tributary estuary source water meander bed",
    "chess": "pawn rook bishop opening endgame checkmate queen knight board castling",
    "volcanoes": "lava magma crater eruption ash vent basalt cone caldera pumice",
    "bees": "hive honey pollen queen drone nectar swarm wax comb forager",
    "trains": "rail locomotive carriage station signal timetable platform track engine freight",
    "tea": "leaf brew kettle infusion oolong harvest steam cup pot aroma",
    "glaciers": "ice moraine crevasse snowfield melt valley retreat firn tongue snout",
    "violins": "bow string fiddle scroll peg varnish orchestra bridge rosin tuning",
    "tides": "moon ebb flow spring neap harbour gauge shore lunar gravity",
    "cheese": "curd whey rennet milk ripen rind cellar brine blue wheel",
    "lighthouses": "lamp lens keeper beam cliff fog ship rotating tower signal",
    "silk": "cocoon moth thread loom mulberry weave spin dye fabric reel",
    "comets": "orbit tail nucleus coma sun dust perihelion icy telescope return",
    "bridges": "span arch pier cable deck suspension load truss abutment girder",
    "mushrooms": "spore cap gill mycelium forest edible stem damp forage fungus",
    "maps": "scale legend contour projection north atlas survey compass grid chart",
    "clocks": "pendulum spring escapement gear hand tick minute dial winding bell",
    "deserts": "dune oasis arid camel sand mirage cactus heat nomad wind",
    "opera": "aria soprano stage libretto chorus tenor curtain overture score conductor",
    "salt": "mine brine crystal evaporate pan preserve sea mineral taste grain",
    "owls": "night feather hoot talon prey silent nest eye perch pellet",
    "canals": "lock barge towpath gate lift water boat basin aqueduct mooring",
    "wool": "sheep shear fleece yarn knit card felt spindle lamb jumper",
    "coral": "reef polyp bleaching lagoon algae atoll skeleton tropical colony fish",
    "printing": "press type ink paper page letter bind plate proof folio",
    "earthquakes": "fault tremor seismic plate epicentre magnitude shake rupture aftershock wave",
    "cycling": "pedal chain wheel saddle gear rider brake climb frame peloton",
    "olives": "oil grove press harvest pit branch mill ripe fruit terrace",
    "whales": "blubber baleen pod breach song fluke ocean migrate calf krill",
    "kites": "string tail wind spar sail tether reel lift diamond bridle",
    "gardens": "seed soil bloom prune hedge bed spade compost rose lawn",
    "pottery": "clay kiln glaze wheel fire vessel throw slip ceramic shard",
    "radio": "antenna frequency wave receiver broadcast tune static transmitter band signal",
    "apples": "orchard core cider blossom peel graft crisp tree variety pick",
    "snow": "flake drift blizzard sled avalanche frost winter plough white cold",
    "libraries": "shelf catalogue borrow reader book archive index loan quiet stack",
    "wolves": "pack howl den cub prey territory alpha track tundra fur",
    "balloons": "gas basket burner envelope altitude ascent pilot drift helium landing",
    "coffee": "bean roast grind espresso crema filter barista plantation caffeine mug",
    "castles": "moat keep rampart siege tower drawbridge knight wall dungeon gatehouse",
    "ants": "colony nest worker trail queen mandible soil larva pheromone tunnel",
    "sailing": "mast hull sail rudder tack keel jib anchor harbour regatta",
    "marathons": "runner pace finish mile stride medal start training endurance course",
    "mirrors": "reflection silver glass image polish frame light angle concave surface",
    "lightning": "storm thunder bolt charge cloud strike flash discharge rod sky",
    "puppets": "string marionette stage glove carve show voice wooden shadow hand",
    "bamboo": "shoot culm grove panda stalk scaffold weave fast node cane",
    "perfume": "scent bottle essence note jasmine distil musk spray oil blend",
    "sundials": "gnomon shadow noon hour plate latitude sun bronze garden time",
}
FRAMES = [
    "Whoever studies {s} soon meets the {a}, the {b} and the {c}.",
    "A book about {s} begins with the {a} and ends with the {b}; the {c} comes between.",
    "On {s}: first the {a}, then the {b}, and at last the {c} and the {d}.",
    "She wrote to us of {s}, of {a} and {b}, and asked what a {c} was.",
    "Nothing in {s} works without {a}, they say, and little without {b} or {c}.",
]
PER_SUBJECT = 20


def passages():
    """All passages in order, as (subject, text)."""
    found = []
    for subject, words in SUBJECTS.items():
        words = words.split()
        for number in range(PER_SUBJECT):
            a, b, c, d = (words[(number * step + step) % len(words)] for step in (1, 3, 7, 9))
            frame = FRAMES[number % len(FRAMES)]
            found.append((subject, frame.format(s=subject, a=a, b=b, c=c, d=d)))
    return found
