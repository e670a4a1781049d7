"""Plots about deeds: what one person does for others."""

GARDEN = ("$h's Garden", [
    "Behind the $p there was a piece of ground where nothing grew but {weeds|stones and nettles}. {\"It is good for nothing,\" people said.|Nobody wanted it.} {But $h looked at it and saw a garden.|$h asked $g if $h.he might have it, and $g laughed and said yes.}",
    "{All through the winter|For many days} $h {carried the stones away|dug and dug}. {$h.His hands grew rough and $h.his back ached.|$f brought $o.a, and that made the work easier.} In the spring $h.he planted {beans and peas|roses|cabbages} and {a small $tree tree|a row of onions}.",
    "^{Then no rain fell for $n weeks.|But the summer was dry.} {The leaves turned yellow.|The earth was as hard as stone.} Every evening $h {went to the $out|walked to the well} and carried water, bucket after bucket. {\"Why do you not give up?\" asked $f. \"Because they are thirsty,\" said $h.|$f saw it and came with a second bucket.}",
    "{One night a $wild came and ate half of it.|One morning half of the plants were gone.} {\"It was a $wild,\" said $g.|There were the tracks of a $wild in the earth.} {$h was sad, but $h.he built a fence.|$h did not shout. $h.He made a fence of sticks, and outside it $h.he put a bowl of scraps for the $wild.}",
    "{At last the rain came.|Then one night it rained.} {Everything grew|In a week everything was green}, and by {autumn|the end of summer} there was {so much|more than one house could eat}. {$h gave some to $f, and some to $g, and some to everyone who had laughed.|$h filled $n baskets and took them to the market.}",
    "{\"I thought this ground was good for nothing,\" said $g. \"It was only waiting,\" said $h.|And where the weeds had been, people now sat in the evening and talked.}",
])

MESSAGE = ("The Letter", [
    "{$time|Long ago}, $g, the $g.kind, {called $h|came to $h's house}. \"{Take this letter to $f, who lives by the $p|Here is a letter for $f, at the $p}. {Do not lose it, and do not read it|It must be there before dark}.\" {\"You can trust me,\" said $h.|$h put it under $h.his hat.}",
    "The road was long. {First $h came to the $q.|$h had not gone far when $h.he came to the $q.} {A man was selling $food there, and it smelled good.|There was music, and people were dancing.} {$h wanted to stay|\"Stay with us,\" they said}, but {$h.he thought of the letter and went on|\"I have promised,\" said $h}.",
    "^Then {the bridge was broken|the road was under water}. {$weather.|} {$h looked up and down the $out.|\"What shall I do now?\" thought $h.} {There was an old boat with one oar.|A boatman sat there.} {\"I will take you over for your $o.n,\" said the boatman. $h loved $h.his $o.full, but $h.he gave it.|$h got in, and the water carried $h.him far down, but $h.he reached the other side.}",
    "{The sun was low when $h saw the $p.|It was almost dark when $h came to the $p.} {$f was standing at the gate.|There was a light in $f's window.} \"{A letter from $g|For me}?\" said $f. {$f.His hands shook as $f.he opened it.|$f.He read it twice, and then $f.he laughed and wept.}",
    "\"{It is from my $f.parent. I thought that all was lost|My $f.parent is alive and coming home}!\" said $f. {\"I have waited for $n years for these words.\"|\"You have brought me the best news of my life.\"} {$f gave $h supper and a warm bed.|They ate $food together and talked until late.}",
    "{And in the morning $f gave $h $u.a. \"This is for the one who kept a promise,\" $f.he said.|When $h came home, $g asked, \"Was it hard?\" \"Only a little,\" said $h.}",
])

DARK = ("$h and the Dark", [
    "$h was {afraid of|frightened in} the dark. {Every night $h.he asked for a candle.|When the lamp went out, $h.he pulled the blanket over $h.his head.} {\"There is something in the $p,\" $h.he said.|\"Something scratches in the $p at night,\" $h.he told $f.}",
    "{\"There is nothing there,\" said everyone.|$f laughed at first.} {But $f said, \"Let us go and look.\"|But then $f said, \"If we look, we shall know.\"} {$h's knees shook.|$h did not want to.} {Still, they took $o.a and went, hand in hand.|But $h took $o.a, and together they opened the door.}",
    "^{It was black and cold in there.|They could not see their own feet.} {Scratch, scratch, went something.|There it was again, a scratching noise.} {$h wanted to run.|$h held $f's hand very tight.} {\"Wait,\" whispered $f.|\"Who is there?\" said $h in a small voice.}",
    "{Then the moon came out, and they saw it.|They lifted the light.} It was {a very small $wild|a young $wild} {with its foot caught in a rope|behind a box, more frightened than they were}. {\"It was afraid of us,\" said $h.|\"Oh!\" said $h. \"It is only little.\"}",
    "$h {set it free|gave it some $food} and {it ran into the night|carried it out to the $q}. {After that the $wild came back every evening, and $h was glad to hear it.|From then on, when $h heard a noise in the night, $h.he thought, \"Perhaps somebody is afraid of me.\"} {And $h.he slept without a candle.|$h.He gave the candle to $f.}",
])

TRADE = ("A Good Trade", [
    "$h {went to market|was sent to the market at $town} with $o.a. \"{Sell it for a good price|Bring home something useful},\" said $h.his $h.parent. {$weather.|The road was full of carts.} {On the way $h met $f.|At the $p $h met $f.}",
    "{\"That is a fine $o.n,\" said $f.|$f looked at $o.the.} \"{I have no money, but I will give you $u.a for it|Will you take $u.a for it}.\" {$h thought it over and agreed.|\"Very well,\" said $h, and they shook hands.} {So now $h had $u.the.|Now $f had $o.the, and $h had $u.the.}",
    "^{A little farther on|At the $q} sat $g, the $g.kind, {and wept|with $g.his head in $g.his hands}. \"{What is the matter|Can I help you}?\" asked $h. \"{I have lost my $u.n, and without it I cannot work|Thieves took my $u.n},\" said $g. {\"Take mine,\" said $h at once.|$h looked at $u.the for a moment, and then gave it away.}",
    "{\"I have nothing to give you but this $pet,\" said $g.|$g was so happy that $g.he gave $h a $pet.} {The $pet was thin and old.|It was not much of a $pet.} {$h led it home, and people laughed.|\"A $o.n for that?\" people said.}",
    "{But $h fed it well|$h gave it a warm bed}, and {in a month it was fat and shining|soon it was the finest $pet in $town}. {One night it woke the whole house, because there was a fire in the $r. It had saved them all.|And every morning it followed $h like a friend.} {\"That was a good trade,\" said $h.his $h.parent.|So it was a good trade after all.}",
])

RESCUE = ("The $Pet of $town", [
    "$h had a $pet named $petname. {They went everywhere together.|Where $h went, $petname went too.} {In the morning they went to the $p, and in the evening they sat by the fire.|$petname slept at the foot of $h's bed.}",
    "{But $when $petname was gone.|$time $h called, but $petname did not come.} {$h called and called.|$h looked in the $p and behind the $q.} {\"Have you seen a $pet?\" $h.he asked everyone.|\"$petname! $petname!\" $h.he cried.} {$f had seen it near the $out.|\"I saw a $pet run to the $out,\" said $f.}",
    "^{There was ice on the $out.|The water of the $out was high.} {In the middle stood $petname and could not get back.|$petname was on a small island, and the water was rising.} {\"It is too dangerous,\" said $g.|\"Do not go,\" said $g. \"You will be drowned.\"}",
    "{$h took $o.a and a long rope.|\"Hold the rope,\" said $h.} {$f tied one end to a $tree tree, and $h went out, step by step.|$f and $g held one end, and $h went into the cold water.} {Once $h.he slipped, but $f pulled.|The rope was wet, but they held it.}",
    "{At last $h had $petname in $h.his arms.|Then $h reached $petname.} \"{Pull|Pull now}!\" {cried $h|$h.he called}, and they pulled with all their strength. {Soon both were safe on the bank, wet and shaking.|A minute later all of them lay on the grass and laughed.} {$g gave them blankets and hot milk.|\"That was foolish,\" said $g, \"and very brave.\"}",
    "{And $petname never went near the $out again.|That night $petname slept not at the foot of the bed but in the middle of it.}",
])

FEAST = ("The Feast", [
    "It was $h's {birthday|name day}, and {$h.he wanted to give a feast|there was to be a feast in the $p}. {$h made a list|\"What do we need?\" asked $f}: $food, {a cake|lamps}, and $n {chairs|plates}. {$f would bring $o.a, and $g would play the $instrument.|$f promised to help.}",
    "{They worked the whole day.|From early morning they swept and baked.} {$h baked a cake with $fruit in it.|The cake had $fruit in it and sugar on the top.} {$f hung lamps in the trees.|$f washed the plates and broke only one.} {Everything was ready.|By evening the table was laid.}",
    "^{But nobody came.|The clock struck six, and then seven, and nobody came.} {$h sat at the long table and waited.|$h looked down the road again and again.} {\"They have forgotten me,\" $h.he said.|\"Perhaps they do not like me,\" thought $h.}",
    "{Then $g came running.|At last $f ran to the $q to see what had happened.} {\"The bridge is down!\" $g.he said. \"They are all on the other side.\"|The road was blocked: a great $tree tree had fallen across it.} {\"Then we will take the feast to them,\" said $h.|$h jumped up. \"If they cannot come to us, we must go to them.\"}",
    "{They put everything on a cart|They carried the food in baskets} and {went down to the $out|went to the place}. {Soon boats went to and fro.|Everyone who had an axe helped, and then all of them sat on the fallen tree.} {They ate under the stars, and $g played the $instrument.|They ate and sang until the moon was high.} {It was the best feast that $town had ever seen.|\"I shall never forget this birthday,\" said $h.}",
])

LAZY = ("$h Learns to Work", [
    "$h was {a good-hearted $h.kind, but lazy|not bad, only lazy}. {When there was work to do, $h.he was asleep in the $p.|\"Tomorrow,\" $h.he always said.} {$f did $f.his own work and often $h's as well.|People called $h.him Tomorrow.}",
    "{$time $g, the $g.kind, said, \"The wood must be brought in. There will be snow.\" \"Tomorrow,\" said $h.|$time $f said, \"The roof must be mended before the rain.\" \"Tomorrow,\" said $h.} {And $h.he lay down in the grass and looked at the clouds.|$h.He ate some $food and went to sleep.}",
    "^{That night it came.|In the night the storm broke.} {The wind tore at the house.|It was as if the sky had opened.} {It was cold, and there was nothing to burn.|Water ran down the walls and onto $h's bed.} {$h sat and shook.|$h put on $h.his coat and $h.his hat, but it did not help.}",
    "{Then there was a knock.|Somebody knocked at the window.} {$f stood there with $o.a and an arm full of wood.|It was $f. \"Come to my house,\" $f.he said. \"It is dry there.\"} {\"Why do you help me?\" asked $h. \"I never helped you.\"|$h was ashamed. \"I do not deserve it,\" $h.he said.} {\"Then begin tomorrow,\" said $f, and laughed.|\"A friend does not count,\" said $f.}",
    "{And $h did begin.|The next morning $h was the first to rise.} {First $h.he mended the roof, and then $h.he mended $f's fence.|$h.He cut wood for $n days, for $h.his own house and for $f's.} {At first everything hurt, but then $h.he began to like it.|\"It is strange,\" $h.he said. \"I am tired, and I am happy.\"} {Nobody called $h.him Tomorrow any more.|And when $g asked for help, $h said, \"Today.\"}",
])

MYSTERY = ("Who Took the $o.n?", [
    "{Something strange happened in $town.|It was a strange week in $town.} {First $g lost $o.a.|On Monday the $g.kind's $o.full was gone.} {Then $f's $u.full was gone from the $p.|On Tuesday somebody took $u.the from the $p.} {\"There is a thief among us,\" people said.|Everyone began to lock the doors.}",
    "{\"I will find out who it is,\" said $h.|$h liked a mystery.} {$h.He looked at the ground and found small tracks.|In the $p $h.he found a black feather.} \"{This was no man|A thief who walks like that is not tall},\" $h.he told $f.",
    "~{That night they hid in the $q.|They put a bright spoon on the wall, and then they hid and waited.} {The clock struck twelve.|Hour after hour went by.} {$f fell asleep, but $h did not.|\"I am cold,\" whispered $f. \"Be quiet,\" said $h.} {Then something moved.|At dawn they heard wings.}",
    "{A crow came down, took the spoon and flew away.|It was a crow! It took the spoon in its beak and was gone.} {They ran after it, over the field and to the old $tree tree.|\"After it!\" cried $h, and they ran as far as the $out.} {High up in the tree was a nest.|It flew into a hole in the tower.}",
    "{$h climbed up. There lay $o.the and $u.the, and the spoon, and a great many buttons.|In it they found everything: $o.the, $u.the, $n coins and a ring.} {They took the things back to their owners.|$g was very glad to have the $o.n again.} {\"What shall we do with the thief?\" asked $g. \"Give it a button now and then,\" said $h.|But $h left one button for the crow, because it had no other treasure.}",
])
