# SPDX-License-Identifier: Apache-2.0
# Flags of all our own code. Generated code does not use this target.
add_library(muster_options INTERFACE)
add_library(muster::options ALIAS muster_options)
target_include_directories(muster_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(muster_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Wimplicit-fallthrough)
# Off where a compiler that nobody tried may warn of something new.
option(MUSTER_WERROR "Warnings are errors" ON)
if(MUSTER_WERROR)
  target_compile_options(muster_options INTERFACE -Werror)
endif()

if(MUSTER_SANITIZE)
  # Everything, generated code too: a mixed build reports false positives.
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  # GCC 12 sees uninitialised standard library objects where a sanitizer rearranged them.
  target_compile_options(muster_options INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
endif()

# muster_library(NAME SOURCES... ): one static library of ours, with an alias muster::NAME.
function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(muster_${name} STATIC ${ARG_SOURCES})
  add_library(muster::${name} ALIAS muster_${name})
  target_link_libraries(muster_${name} PUBLIC muster::options ${ARG_LINK}
                                       PRIVATE ${ARG_PRIVATE_LINK})
endfunction()

find_program(MUSTER_CCACHE ccache)
if(MUSTER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MUSTER_CCACHE})
endif()
