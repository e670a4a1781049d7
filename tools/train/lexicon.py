"""The words of the stories' world. Nothing here is copied from any corpus."""

GIRLS = "Mira Anna Lucy Nell Rosa Ivy Clara Tess Ada Hazel Wren Flora Dora Elsie Maud Greta Pearl June Lottie Bess".split()
BOYS = "Tom Jack Finn Otto Hugo Ned Sam Abel Will Jasper Leo Peter Rufus Owen Toby Felix Miles Oscar Ralph Ben".split()
WOMEN = ["baker", "weaver", "miller's wife", "schoolmistress", "gardener", "ferrywoman", "nurse", "beekeeper"]
MEN = ["miller", "smith", "fisherman", "carpenter", "shepherd", "clockmaker", "woodcutter", "postman", "sailor"]
TOWNS = "Oakham Brindle Marlow Fernhill Stonebridge Redcliff Willowby Ashford Thornton Elmdale Greywater Larkfield".split()
COLOURS = "red green blue yellow white black brown silver golden grey purple orange".split()
SIZES = ["little", "small", "big", "great", "tiny", "old", "new", "round", "heavy", "pretty"]
# Things that can be carried, lost, found and hidden.
THINGS = ("key lantern drum ring map coin whistle ball book knife bell button cup box spoon hat scarf shell candle rope "
          "feather kite basket brush mirror clock doll flute letter comb stone").split()
# Where people go; and where, besides, a thing can be hidden.
PLACES = ["barn", "mill", "garden", "church", "well", "stable", "tower", "orchard", "bakery", "boathouse", "school", "cave",
          "forest", "market", "library", "chapel", "meadow", "harbour"]
HIDES = PLACES + ["cellar", "attic", "kitchen", "chimney", "cupboard", "shed"]
OUTSIDE = ["river", "hill", "wood", "lake", "valley", "bridge", "road", "shore", "field", "moor"]
FOODS = "plums bread honey cheese apples soup pears cake milk cherries nuts porridge butter pancakes berries eggs".split()
PETS = "dog cat goat hen duck pony rabbit mouse goose lamb parrot donkey".split()
PET_NAMES = "Pip Tuft Bramble Socks Patch Moss Biscuit Thimble Dot Pepper Clover Button Rusty Smoke Nib Barley".split()
WILD = "fox owl crow hare badger otter deer hedgehog squirrel heron".split()
TREES = "oak elm willow apple birch pine chestnut".split()
GOODS = "apples pears plums eggs candles ropes nails cups hats loaves fish cheeses baskets brooms".split()
TRAITS = ["kind", "brave", "clever", "patient", "honest", "gentle", "careful", "cheerful"]
FLAWS = ["proud", "lazy", "shy", "greedy", "careless", "stubborn", "jealous", "hasty"]
LIKES = ["swimming", "singing", "reading", "fishing", "painting", "dancing", "climbing", "baking", "drawing", "sewing", "riding", "whistling"]
WEATHER = ["The sun was warm", "A soft rain fell", "The wind blew hard", "A thick mist lay on the fields", "Snow covered the roofs",
           "The sky was clear and blue", "Grey clouds hung low", "It was a bright, cold morning", "It was a hot and quiet afternoon"]
TIMES = ["One morning", "One evening", "One day", "Early one day", "Late in the summer", "On a cold day in winter", "In the spring",
         "On the first day of autumn", "Just before dinner", "After the harvest", "On a Sunday", "On market day"]
SMALL = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"]
