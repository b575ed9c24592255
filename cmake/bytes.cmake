# bytes.cmake: a file as an array of C: -DIN -DOUT -DNAME.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "// Written by cmake/bytes.cmake.\n#include <stddef.h>\nextern const char ${NAME}[];\nextern const size_t ${NAME}_size;\nconst char ${NAME}[] = {${bytes}0};\nconst size_t ${NAME}_size = ${size};\n")
