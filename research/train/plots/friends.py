"""Plots about friends and things."""

LOST = ("The Lost $o.n", [
    "$time, $h {could not find|looked everywhere for} $h.his $o.full. {$h.He had owned it for $n years|It had been a gift from $h.his $h.parent}, and {$h.he loved it more than anything|$h.he never went out without it}.",
    "\"{Where can it be|Who has seen my $o.full|What shall I do}?\" {said|asked|cried} $h. {$h.He looked under the bed and behind the door, but it was not there.|$h.He looked in the $q and then in the $r, but there was nothing.|$h.He sat down and {began to cry|thought for a long time}.}",
    "^$f {heard $h.him and came to help|came by and saw that $h was sad}. \"{When did you see it last|Where were you yesterday}?\" asked $f. \"{I had it when I was in the $p|I took it with me to the $p}, {because I wanted to show it to $g|and there I met $g, the $g.kind},\" said $h.",
    "So {the two friends|$h and $f} {went|walked|ran} {together |}to the $p. $weather. {On the way they asked everyone they met, but nobody knew anything.|They did not speak much, for $h was worried.|}",
    "?$g was {standing at the door|sitting by the fire|sweeping the floor}. \"{I have not seen it|I found nothing here this morning},\" said $g, \"but {you may look as long as you like|a $wild was here at dawn, and it likes things that shine}.\"",
    "{They searched in every corner.|They looked high and low.} {At last|Then|After an hour} $f {saw something shine in the straw|put a hand behind an old box|lifted a loose board}. \"{Here it is|Look what I have found|Come quickly}!\" $f {called|cried|shouted}. It was $o.the.",
    "$h {laughed for joy|was so happy that $h.he danced|threw $h.his arms around $f}. \"{Thank you|You are a true friend}, $f,\" $h.he said. {\"I will never be so careless again.\"|\"Without you I would never have found it.\"} {From that day on $h kept the $o.n in a safe place.|That night $h put $o.the beside the bed and slept well.|And they went home together and ate $food.}",
])

SICK = ("$h and the Medicine", [
    "{$time|One night}, $f {fell ill|woke with a fever|could not get out of bed}. {$f.His face was hot and $f.his hands were cold|$f.He could not eat or drink}, and nobody in $town knew what to do.",
    "{\"Only the flower that grows near the $out can help,\" said $g, the $g.kind.|$g, the $g.kind, shook $g.his head. \"There is a flower by the $out that can cure $f.him,\" $g.he said.} \"{But the way is long and dark|But nobody has gone there for years}.\" \"{Then I will go|I am not afraid},\" said $h.",
    "$h took $o.a and {some bread|a bottle of water|a piece of cheese} and {set out at once|left before sunrise}. $weather. {$h.He walked all day, past the $p and past the $q, until $h.his feet hurt.|$h.He went past the $p, and then the path became steep.}",
    "^At the edge of the $out {sat|stood} a $wild {with a hurt foot|caught in a net|that could not get free}. {\"Please help me,\" it seemed to say.|It looked at $h with sad eyes.} {$h was in a hurry, but $h.he was also $h.trait|$h could not leave it there}, so {$h.he stopped and set it free|$h.he cut the net and gave it something to eat}.",
    "{When night fell, $h lost the path.|It grew so dark that $h could see nothing.} {Then the $wild came back and walked ahead of $h.him.|But the $wild had not gone away; it led $h.him between the trees.} {Soon they came to a place|It stopped at last} where {white flowers shone in the moonlight|a single blue flower grew among the stones}.",
    "{$h picked one and ran home as fast as $h.he could.|$h thanked the $wild, took the flower and hurried home.} $g {boiled it in water|made tea from it}, and $f drank. {In the morning the fever was gone.|Before the sun was up, $f opened $f.his eyes and smiled.}",
    "\"{How did you find the way|Were you not afraid}?\" asked $f. \"{I was kind to someone, and someone was kind to me|A friend showed me},\" said $h. {And that was the truth.|Everyone in $town talked about it for a long time.}",
])

QUARREL = ("The Quarrel", [
    "$h and $f were {good|the best of} friends{| and did everything together}. {But $when they had a quarrel.|They had never quarrelled before that day.} {They had found $o.a in the $p|An old woman had given them $o.a}, and {both of them wanted it|each said, \"It is mine\"}.",
    "\"I saw it first,\" said $h. \"But I picked it up,\" said $f. {They pulled and they shouted|Neither would let go}, and {at last the $o.n fell to the ground|in the end $h ran away with it}. {$f was very angry.|$f went home without a word.}",
    "^{That evening|For three days} $h {sat alone in the $q|played alone}. {The $o.n was no fun any more.|It was $o.a, but it could not talk or laugh.} {$h.He missed $f.|$h thought of $f and felt ashamed.}",
    "\"{What is the matter|Why are you so quiet}?\" asked $g, who was {mending a net|peeling apples|passing by}. $h told $g.him everything. {\"A thing can be shared, but a friend can be lost,\"|\"Which would you rather keep, the $o.n or your friend?\"} said $g.",
    "{$h knew what to do.|The next morning $h got up early.} $h.He {took the $o.n|wrapped the $o.n in paper} and went to the $r, where $f {was feeding the hens|was sitting on a wall|was reading}. \"{I am sorry|I was wrong},\" said $h. \"{I want you to have it|Let us share it}.\"",
    "$f {looked at the ground, then smiled|was silent for a moment}. \"{I was wrong too|I am sorry as well},\" $f.he said. \"{You can have it on Mondays, and I can have it on Tuesdays.|It belongs to both of us.}\" {So they were friends again, better friends than before.|They laughed, and nobody in $town ever saw them quarrel again.}",
])

TREASURE = ("The Secret of the $p", [
    "{$time|On a rainy day}, $h found {an old piece of paper|a yellow letter|a small map} {in a book|under the floor|inside a broken clock}. On it was written: \"Look {under the $tree tree|behind the wall} near the $p. {Take $n steps to the north|Dig as deep as your arm is long}.\"",
    "$h {ran to show it to $f|could hardly wait to tell $f}. \"{It may be a treasure|It is only a joke}!\" said $f. \"{Let us go and see|We shall not know until we look},\" said $h, and {they took a spade and $o.a|they set off with $o.a to give them light}.",
    "~{The way led past the $q and over the $out.|First they passed the $q, then they crossed the $out.} $weather. {$f wanted to turn back, but $h would not.|$f was tired, but $h said, \"Only a little farther.\"}",
    "At the $p they {counted the steps|found the place at once}. {They dug and dug|$h dug while $f held the lantern} until {the spade struck something hard|they heard a hollow sound}. It was {an iron chest|a wooden box|a clay pot}. {It was locked.|The lid was heavy.}",
    "?\"{Who could have put it here|It must be very old},\" {whispered|said} $f. {An owl cried, and both of them jumped.|The wind made a strange sound in the trees.}",
    "Inside {there was no gold|they found neither gold nor silver}. There was $u.a and a letter. \"{Dear finder|To the one who reads this},\" it said, \"{this was mine when I was young. Keep it well, and be happy|I was poor, but I had a friend to dig with. That is the treasure}. {Your friend|Yours}, $g.\"",
    "{$h and $f looked at each other.|For a while they said nothing.} \"$g {is my $h.parent's name|is the $g.kind who lives by the $r}!\" {said|cried} $h. {They took $u.the to $g, who laughed until the tears came.|So they carried $u.the to $g, and $g told them stories until midnight.}",
])

RACE = ("The Race at $town", [
    "Every year there was a race in $town, from the $p to the $q{| and back again}. {This year the prize was $o.a.|The one who won would get $o.a.} {$h wanted to win it|$h had dreamed of it all winter}, and so did $f.",
    "$f was {fast|the fastest runner in the school} but {$f.flaw|also $f.flaw}. {\"Nobody can beat me,\" $f.he said. \"I do not need to practise.\"|$f.He laughed when $h got up early to run.} {$h said nothing and ran every morning, in sun and in rain.|But $h ran up the hill every day, and every day it was a little easier.}",
    "^{The day came.|At last it was the day of the race.} $weather. {All the people stood along the road.|The whole town had come to watch.} $g, the $g.kind, {raised a flag|rang a bell}, and off they went. {$f was soon far ahead.|At first $f led and $h was only fifth.}",
    "{Near the $r $f looked back and saw nobody.|At the $r, $f was so far ahead that $f.he sat down to rest.} \"{I have plenty of time|I can walk the rest},\" $f.he thought. {But $h did not stop.|But $h was running, step by step, without a rest.} {Soon $h passed $f.him.|When $f got up, $h was already on the bridge.}",
    "{Then $f fell and hurt $f.his knee.|$f ran as fast as $f.he could, but $f.he fell over a stone.} {$h heard $f.him cry out. $h.He looked at the finish, and then at $f, and went back.|$h could have won then. But $h.he stopped, turned round and helped $f up.} {They came in together, the very last.|Arm in arm they walked to the end, after all the others.}",
    "{Everybody cheered louder than for the winner.|Nobody laughed. Everybody clapped.} {$g gave $o.the to $h all the same.|\"The prize is for the best runner,\" said $g, \"but this is for the best friend,\" and $g.he gave $h $o.a.} {\"Next year I will practise with you,\" said $f.|And from that day on, $h and $f ran together every morning.}",
])

STRANGER = ("The Stranger", [
    "{$time|One stormy night}, {there was a knock at the door|somebody knocked at $h's door}. {Rain beat on the roof and the wind howled.|It was dark and cold outside.} $h opened, and there stood $f.a with $o.a under $f.his arm.",
    "\"{May I come in and get dry|I have lost my way. May I sit by your fire}?\" asked the stranger. {\"We have not much,\" said $h, \"but you are welcome.\"|$h was a little afraid, but $h.he was $h.trait, and $h.he opened the door wide.} {They shared a pot of soup and a piece of bread.|$h gave $f.him soup, and a blanket, and the chair by the fire.}",
    "^\"My name is $f,\" said the stranger. \"{I have walked from the $out|I am on my way to the $p}, {to find my brother|because I was told there is work}.\" {They talked until the fire was low.|$f knew many stories, and $h listened until late.} {Outside, the storm went on.|}",
    "In the morning {the stranger was gone|the bed was empty}. {$h found $o.the on the table.|On the table lay $o.the.} {\"Keep it until I come back,\" said a note.|There was a note: \"For the kindest house in $town.\"} {$h put it in the $q.|$h hung it on the wall.}",
    "{A year went by.|Winter came, and it was a hard one.} {The harvest was bad, and there was little to eat.|$h's roof broke, and there was no money to mend it.} {$h could have sold the $o.n, but $h.he did not. \"It is not mine,\" $h.he said.|$g offered $h money for the $o.n, but $h said, \"I promised to keep it.\"}",
    "{Then, on a cold evening, there was a knock.|One evening somebody knocked again.} {It was $f, and behind $f.him stood a cart full of corn.|It was $f, with two men and a cart full of wood.} \"{You kept it|You still have it}!\" said $f. \"{Now I can give you something in return|I have found my brother, and we have come to help}.\" {And they did.|So $h was helped by the one $h.he had helped.}",
])

BUILD = ("How $h Built a $Made", [
    "$h {wanted to build a $made|had always wanted a $made}. {\"That is too hard for you,\" said $f.|Everyone told $h.him that it could not be done.} {\"I can learn,\" said $h.|But $h would not give up so easily.} {$time $h.he began.|So $h.he went to work.}",
    "First $h.he {asked $g, the $g.kind, for wood|found some old boards in the $p}. {$g gave $h.him $n boards and $o.a.|There were $n of them, and $h carried them home one by one.} {$h measured and sawed and hammered all day.|All week $h worked, from breakfast until dark.}",
    "^{But the first $made was no good.|When it was done, $h tried it.} {It broke in the middle, and $h fell into the water.|It fell down with a great noise, and the hens ran away.} {$f laughed, but then $f.he was sorry.|$f tried not to laugh.} \"{Are you hurt|What will you do now}?\" asked $f.",
    "\"{I know what I did wrong|I used too few nails},\" said $h. {\"The wood was too thin.\"|\"I was in too great a hurry.\"} {So $h.he began again, and this time $f helped.|\"Let me help you,\" said $f, and together they began again.} {One held the boards, and the other drove in the nails.|They worked slowly and looked at every board twice.}",
    "{On the last day|After many days} it was finished. {It was strong and straight.|It was not pretty, but it did not break.} {They painted it $h.colour.|$f painted it $f.colour, and $h wrote its name on it.} {Even $g came to look at it|All the children came to see it}, and {nobody laughed|$g said, \"That is good work\"}.",
    "{\"I thought it could not be done,\" said $f. \"So did I,\" said $h, \"the first time.\"|That evening the two friends sat in it and ate $food, and they were very proud.}",
])

BROKEN = ("The Broken $o.n", [
    "{In $h's house there was $o.a|On the shelf in the $p stood $o.a}. {It had belonged to $h.his $h.parent|It was very old}, and {nobody was allowed to touch it|$h had promised never to touch it}.",
    "{But $when $h was alone.|$time, when nobody was at home, $h climbed on a chair.} {\"I will only look at it,\" $h.he told the empty room.|$h only wanted to hold it for a moment.} {Then the cat jumped|Just then the door banged}, and {the $o.n fell|it slipped out of $h.his hands}. It broke into $n pieces.",
    "{$h's heart beat fast.|For a moment $h could not breathe.} {$h.He put the pieces in a bag and hid them in the $q.|$h.He hid the pieces in the $q and ran outside.} \"{Nobody will know|Perhaps they will think it was the cat},\" $h.he thought.",
    "^{But at dinner $h could not eat.|All day long $h thought about it.} {Even $h.food did not taste good.|At night $h lay awake.} \"{Is something wrong|Are you ill}?\" asked $f. {$h shook $h.his head|\"No,\" said $h}, {and felt worse|but it was not true}.",
    "{In the morning $h could bear it no longer.|At last $h went to the $q and fetched the bag.} \"{I broke it|It was I},\" $h.he said{, and began to cry|}. \"{And then I hid it|And I did not dare to tell you}. I am sorry.\"",
    "{$h.His $h.parent was silent for a while.|$h.His $h.parent looked at the pieces.} \"{A $o.n can be mended|It was only a $o.n},\" $h.his $h.parent said. \"{But I am glad that you told me|The truth is worth more}.\" {Together they glued it, piece by piece.|They took it to $g, the $g.kind, who mended it.} {It was never quite the same, but $h liked it better than before.|You could still see the cracks, and $h never forgot.}",
])
