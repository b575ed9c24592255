# What `cmake --install` puts in place: the program, the library, its one header, its pkg-config file, man pages, completions.

# The public header is installed whole: its one include is put into it.
file(READ ${CMAKE_SOURCE_DIR}/formats/err.h err)
file(READ ${CMAKE_SOURCE_DIR}/runtime/lq.h header)
string(REPLACE "#include \"formats/err.h\"\n" "${err}" header "${header}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/include/lq.h CONTENT "${header}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/formats/err.h ${CMAKE_SOURCE_DIR}/runtime/lq.h)

# The prefix is told from where the file lies, so that an installed tree may be moved.
file(RELATIVE_PATH LQ_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/lq.pc.in ${CMAKE_BINARY_DIR}/lq.pc @ONLY)

# The program writes its own man pages and completions, from the tables it parses by.
set(pages ${CMAKE_BINARY_DIR}/man/lq.1)
set(write_pages COMMAND lq man > ${CMAKE_BINARY_DIR}/man/lq.1)
foreach(file ${LQ_TOOLS} lq_completion.c lq_man.c lq_help.c)
  if(file MATCHES "lq_([a-z_]+)\\.c$") # lq_bench_serve.c: the verb bench serve
    string(REPLACE _ ";" verb ${CMAKE_MATCH_1})
    string(REPLACE _ - page ${CMAKE_MATCH_1})
    list(APPEND pages ${CMAKE_BINARY_DIR}/man/lq-${page}.1)
    list(APPEND write_pages COMMAND lq man ${verb} > ${CMAKE_BINARY_DIR}/man/lq-${page}.1)
  endif()
endforeach()
set(completions ${CMAKE_BINARY_DIR}/completion/lq ${CMAKE_BINARY_DIR}/completion/_lq)
add_custom_command(OUTPUT ${pages} ${completions}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man ${CMAKE_BINARY_DIR}/completion
  ${write_pages}
  COMMAND lq completion bash > ${CMAKE_BINARY_DIR}/completion/lq
  COMMAND lq completion zsh > ${CMAKE_BINARY_DIR}/completion/_lq
  DEPENDS lq COMMENT "man pages and completions")
add_custom_target(lq_pages ALL DEPENDS ${pages} ${completions})

install(TARGETS lq lq_static lq_shared)
install(FILES ${CMAKE_BINARY_DIR}/include/lq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/lq.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/completion/lq DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/completion/_lq DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
