# What `cmake --install` puts in place. The public header is installed whole: its one include is put into it.
file(READ ${CMAKE_SOURCE_DIR}/formats/err.h err)
file(READ ${CMAKE_SOURCE_DIR}/runtime/lq.h header)
string(REPLACE "#include \"formats/err.h\"\n" "${err}" header "${header}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/include/lq.h CONTENT "${header}")
install(FILES ${CMAKE_BINARY_DIR}/include/lq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS lq lq_static lq_shared)
