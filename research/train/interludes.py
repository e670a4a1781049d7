"""Short scenes between the beats of a plot: with the hero alone (`ALONE`), with hero and friend (`TOGETHER`)."""

ALONE = [
    "$weather. {Somewhere a dog barked.|A cart went by.|The church clock struck $n.} {Birds sang in the $tree trees.|Smoke rose from the chimneys of $town.|The leaves moved a little in the wind.}",
    "{$h thought of $h.his $h.parent, who used to say, \"{A slow step is better than none|Look twice before you speak|Every road has an end|What you give comes back}.\"|$h remembered what $h.his $h.parent always said: {the night is darkest before dawn|a good friend is worth a house|nothing is lost that somebody looks for}.}",
    "{Just then|At that moment} $g came by with {a basket of $food|a $pet on a rope|a heavy sack}. \"{Good day|Good morning}, $h! {Where are you going|What are you doing}?\" \"{I cannot tell you yet|That is a long story},\" {said|answered} $h. \"{Then tell me when it is over|Well, be careful},\" said $g, and went on.",
    "{$h.He was|$h was} {tired|hungry|a little afraid}, but {$h.he said nothing|$h.he did not want to show it}. {The hours went by slowly.|It seemed a long time.}",
    "{A $wild looked at $h.him from behind a $tree tree and was gone.|Far away $h saw a $wild by the water.} {$h stood still for a moment.|Then all was quiet again.}",
    "$h {was hungry and ate a little $food|found some $food in $h.his pocket and shared it with a bird}. {After that the world looked brighter.|It helped a little.}",
]
TOGETHER = [
    "{They|The two} {sat down for a while|rested under a $tree tree} and {shared some bread|ate what they had brought}. \"{Do you remember|Have you forgotten} how we {fell into the $out|got lost in the $out|met}?\" asked $f. \"{How could I forget it|Of course},\" said $h, and both of them laughed.",
    "$weather. {Somewhere a dog barked.|A cart went by.|The church clock struck $n.} {Birds sang in the $tree trees.|Smoke rose from the chimneys of $town.|The leaves moved a little in the wind.}",
    "\"My $h.parent always said that {the night is darkest before dawn|a good friend is worth a house|nothing is lost that somebody looks for},\" said $h. {$f smiled.|\"I hope it is true,\" said $f.}",
    "{There was a smell of $food from somewhere.|$f had brought some $food.} {They had not eaten since the morning.|It was a long time since breakfast.} {So they ate, and felt better.|After that the world looked brighter.}",
    "{A $wild looked at them from behind a $tree tree and was gone.|Far away they saw a $wild by the water.} \"{Did you see that|Look}!\" {said|whispered} $f. {$h nodded.|But $h was thinking of something else.}",
]
