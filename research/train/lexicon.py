"""Vocabulary of the stories. Not copied from any corpus.

The pools are large: with hundreds of names and things, only copying predicts the right one. `WHOLE`: the words that are one
token each, so that one step of attention can copy them.
"""

GIRLS = """Mira Anna Lucy Nell Rosa Ivy Clara Tess Ada Hazel Wren Flora Dora Elsie Maud Greta Pearl June Lottie Bess Agnes Alma Amy Beth Carla
Cecily Daisy Della Edith Edna Ella Emma Erika Esther Etta Eva Faye Freda Gerda Gwen Hanna Heidi Helga Hilda Holly Ida Inga Irma Jane Jenny Judith
Julia Karin Kate Kitty Laura Lena Lily Linda Lisa Lola Lydia Mabel Maria Martha Mary Molly Nadia Nancy Nina Nora Olga Olive Paula Polly Rita Ruth
Sally Selma Sonia Susan Thea Tilda Tina Ursula Vera Viola Wanda Willa Zelda Zora""".split()
BOYS = """Tom Jack Finn Otto Hugo Ned Sam Abel Will Jasper Leo Peter Rufus Owen Toby Felix Miles Oscar Ralph Ben Adam Alan Albert Andrew Anton Arthur
Basil Boris Bruno Carl Casper Cyril Daniel David Denis Edgar Edwin Emil Erik Ernest Floyd Frank Fred Georg Gilbert Hans Harold Harry Henry Herman
Isaac Ivan Jacob James Joel John Jonas Joseph Karl Keith Kurt Lars Louis Lukas Mark Martin Max Moritz Nathan Niels Noel Oliver Oswald Paul Percy
Philip Quentin Robert Roland Roy Rudolf Simon Stefan Steven Sven Theo Thomas Timothy Ulrich Victor Vincent Walter Warren Wilfred""".split()
WOMEN = ["baker", "weaver", "schoolmistress", "gardener", "ferrywoman", "nurse", "beekeeper", "cook", "potter", "seamstress", "painter", "washerwoman",
         "midwife", "singer", "innkeeper", "spinner"]
MEN = ["miller", "smith", "fisherman", "carpenter", "shepherd", "clockmaker", "woodcutter", "postman", "sailor", "tailor", "mason", "butcher", "hunter",
       "cobbler", "doctor", "farmer", "watchman", "fiddler"]
TOWNS = """Oakham Brindle Marlow Fernhill Stonebridge Redcliff Willowby Ashford Thornton Elmdale Greywater Larkfield Appleby Barton Bexley Birkdale
Carlow Dunmore Easton Farley Glenmoor Halden Kelby Langley Millbrook Norwood Oxley Penrith Quarley Ripley Selby Tilbury Upton Walden Wexham
Yarrow Crowhurst Deepdale Foxton Hartley""".split()
COLOURS = "red green blue yellow white black brown silver golden grey purple orange pink scarlet violet".split()
SIZES = ["little", "small", "big", "great", "tiny", "old", "new", "round", "heavy", "pretty"]
# Things that can be carried, lost, found and hidden.
THINGS = """key lantern drum ring map coin whistle ball book knife bell button cup box spoon hat scarf shell candle rope feather kite basket brush
mirror clock doll flute letter comb stone apron axe bag bead belt blanket boot bottle bow bowl bracelet broom bucket cap chain chisel cloak coat
compass crown cushion dagger dish fan flag fork funnel glove hammer harp hook horn horseshoe jar jug kettle ladder lamp locket mask medal mug
nail necklace needle net oar pan pencil picture pillow pin pipe plate pot puppet purse ribbon saddle saw shovel sickle sieve slipper
sponge stamp stick sword teapot thimble torch tray trumpet umbrella vase violin wallet wheel whip wreath""".split()
# Locations; additional hiding locations.
PLACES = """barn mill garden church well stable tower orchard bakery boathouse school cave forest market library chapel meadow harbour castle
windmill graveyard courtyard inn quarry vineyard lighthouse smithy brewery dairy square palace monastery""".split()
HIDES = PLACES + """cellar attic kitchen chimney cupboard shed pantry hallway stove trunk drawer wardrobe cradle haystack hedge ditch kennel sack
barrel loft woodpile pond fireplace gutter oven crate""".split()
OUTSIDE = ["river", "hill", "wood", "lake", "valley", "bridge", "road", "shore", "field", "moor"]
FOODS = """plums bread honey cheese apples soup pears cake milk cherries nuts porridge butter pancakes berries eggs beans carrots grapes ham jam
lemons mushrooms noodles olives onions peaches peas pie potatoes pudding radishes raisins rice sausages spinach toast tomatoes trout turnips
waffles walnuts""".split()
PETS = "dog cat goat hen duck pony rabbit mouse goose lamb parrot donkey calf pigeon piglet turtle".split()
PET_NAMES = """Pip Tuft Bramble Socks Patch Moss Biscuit Thimble Dot Pepper Clover Button Rusty Smoke Nib Barley Acorn Bubbles Crumb Dusty Flash
Fudge Ginger Hop Jingle Lucky Muffin Noodle Peanut Pickle Puddle Scamp Shadow Snap Spot Sugar Tinker Toffee Velvet Whisk""".split()
WILD = "fox owl crow hare badger otter deer hedgehog squirrel heron".split()
TREES = "oak elm willow apple birch pine chestnut".split()
GOODS = "apples pears plums eggs candles ropes nails cups hats loaves fish cheeses baskets brooms spoons bottles buttons coins feathers jars".split()
TRAITS = ["kind", "brave", "clever", "patient", "honest", "gentle", "careful", "cheerful"]
FLAWS = ["proud", "lazy", "shy", "greedy", "careless", "stubborn", "jealous", "hasty"]
LIKES = """swimming singing reading fishing painting dancing climbing baking drawing sewing riding whistling hunting juggling knitting running
sailing skating sleeping walking weaving wrestling writing digging""".split()
WEATHER = ["The sun was warm", "A soft rain fell", "The wind blew hard", "A thick mist lay on the fields", "Snow covered the roofs",
           "The sky was clear and blue", "Grey clouds hung low", "It was a bright, cold morning", "It was a hot and quiet afternoon"]
TIMES = ["One morning", "One evening", "One day", "Early one day", "Late in the summer", "On a cold day in winter", "In the spring",
         "On the first day of autumn", "Just before dinner", "After the harvest", "On a Sunday", "On market day"]
SMALL = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"]

# One-token words; names also occur at the beginning of a paragraph, without a preceding space.
CARRIERS = sorted(set(GIRLS + BOYS + TOWNS + PET_NAMES + THINGS + HIDES + FOODS + WOMEN + MEN + COLOURS + LIKES + PETS + GOODS))
WHOLE = [" " + w for w in CARRIERS] + sorted(set(GIRLS + BOYS))
