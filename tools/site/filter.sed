# Characters that Doxygen reads as commands or tags are escaped in comments.
/\/\/ /{
h
s@^(.*)// .*$@\1@
x
s@^.*// @@
s@[\\@<>&#%"]@\\&@g
H
x
s@\n@// @
}
# A line of comment documents what follows; a comment behind a declaration documents it.
s@^( *)// @\1/// @
s@^( *[^ /].*;) +// @\1 ///< @
s@^( *[^ /].*,) +// @\1 ///< @
# A specialisation of a name of the standard library, which Doxygen does not know.
/^inline constexpr bool std::/d
