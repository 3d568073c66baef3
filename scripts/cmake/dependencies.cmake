# SPDX-License-Identifier: Apache-2.0
# Debian 12's packages (scripts/setup installs them), each behind one target of ours.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_program(MUSTER_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

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

muster_static_package(muster_absl absl_statusor)
add_library(muster::absl ALIAS muster_absl)
muster_static_package(muster_protobuf protobuf)
add_library(muster::protobuf ALIAS muster_protobuf)
muster_static_package(muster_grpc grpc++)
target_link_libraries(muster_grpc INTERFACE muster_protobuf)
add_library(muster::grpc ALIAS muster_grpc)

# Boost.Asio, header only. 1.74 uses std::exchange without <utility>.
add_library(muster_asio INTERFACE)
add_library(muster::asio ALIAS muster_asio)
target_compile_options(muster_asio INTERFACE "SHELL:-include utility")
target_compile_definitions(muster_asio INTERFACE BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(muster_asio INTERFACE Threads::Threads)
if(MUSTER_SANITIZE MATCHES "thread")
  # ThreadSanitizer does not know fences; the queue's mutex orders handlers anyway.
  target_compile_definitions(muster_asio INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

add_library(muster_json INTERFACE)
add_library(muster::json ALIAS muster_json)
target_link_libraries(muster_json INTERFACE nlohmann_json::nlohmann_json)

# The journal.
muster_static_package(muster_sqlite sqlite3)
add_library(muster::sqlite ALIAS muster_sqlite)

# CPU compute and transport of the training runtime.
find_library(MUSTER_DNNL dnnl REQUIRED)
find_library(MUSTER_GLOO gloo REQUIRED)
find_library(MUSTER_XXHASH libxxhash.a REQUIRED)

find_program(MUSTER_NVCC nvcc HINTS /usr/local/cuda/bin)
if(MUSTER_NVCC)
  get_filename_component(cuda_root ${MUSTER_NVCC} DIRECTORY)
  find_path(MUSTER_CUDA_HEADERS cuda.h HINTS ${cuda_root}/../include)
endif()
if(MUSTER_CUDA STREQUAL "ON" AND NOT MUSTER_NVCC)
  message(FATAL_ERROR "MUSTER_CUDA=ON, but no nvcc was found")
endif()
if(MUSTER_NVCC AND NOT MUSTER_CUDA STREQUAL "OFF")
  message(STATUS "CUDA compiler: ${MUSTER_NVCC}")
else()
  message(STATUS "CUDA compiler: none; this build has no device code and runs on CPUs only")
endif()
