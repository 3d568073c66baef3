# SPDX-License-Identifier: Apache-2.0
# muster::absl, which is everywhere. Where gpu-check alone is built, a machine may do without it.
find_package(Threads REQUIRED)

# gRPC, Protobuf and abseil come from Debian's archives: a dynamically linked start takes twice
# as long. What pkg-config lists is linked from the .a where there is one; libc stays shared.
function(muster_static_package target package)
  pkg_check_modules(${target}_PC REQUIRED ${package})
  add_library(${target} INTERFACE)
  set(libraries "")
  foreach(name IN LISTS ${target}_PC_STATIC_LIBRARIES)
    find_library(archive_${name} lib${name}.a)
    if(name MATCHES "^(pthread|dl|rt|m|c)$")
      list(APPEND libraries ${name})
    elseif(archive_${name})
      list(APPEND libraries ${archive_${name}})
    else()
      list(APPEND libraries ${name})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  target_link_libraries(${target} INTERFACE -Wl,--start-group ${libraries} -Wl,--end-group
                                            Threads::Threads)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_PC_INCLUDE_DIRS})
endfunction()

set(MUSTER_ABSEIL AUTO CACHE STRING "With MUSTER_GPU_ONLY: abseil where it is found (AUTO), or OFF")
set(found_absl TRUE)
if(MUSTER_GPU_ONLY)
  set(found_absl FALSE)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND AND NOT MUSTER_ABSEIL STREQUAL "OFF")
    pkg_check_modules(look_for_absl QUIET absl_statusor)
    set(found_absl ${look_for_absl_FOUND})
  endif()
else()
  find_package(PkgConfig REQUIRED)
endif()

if(found_absl)
  muster_static_package(muster_absl absl_statusor)
else()
  # As much of its interface as we use, in headers of our own.
  message(STATUS "abseil: none; its stand-in of tests/gpu/stand_in")
  add_library(muster_absl INTERFACE)
  target_include_directories(muster_absl SYSTEM INTERFACE ${CMAKE_SOURCE_DIR}/tests/gpu/stand_in)
  target_link_libraries(muster_absl INTERFACE Threads::Threads)
endif()
add_library(muster::absl ALIAS muster_absl)
