# bytes.cmake: a file as an array of C, with its size and what tells it from any other: -DIN -DOUT -DNAME.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(SHA256 ${IN} hash)
file(WRITE ${OUT} "// Written by cmake/bytes.cmake.\n#include <stddef.h>\nextern const char ${NAME}[];\nextern const size_t ${NAME}_size;\nconst char ${NAME}[] = {${bytes}0};\nconst size_t ${NAME}_size = ${size};\nextern const char ${NAME}_hash[];\nconst char ${NAME}_hash[] = \"${hash}\";\n")
