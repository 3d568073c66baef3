# SPDX-License-Identifier: Apache-2.0
# Debian 12's packages (scripts/setup installs them), each behind one target of ours.
find_package(Protobuf REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_program(MUSTER_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

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

# TLS; static as gRPC's own.
muster_static_package(muster_openssl openssl)
add_library(muster::openssl ALIAS muster_openssl)

# The journal.
muster_static_package(muster_sqlite sqlite3)
add_library(muster::sqlite ALIAS muster_sqlite)

# CPU compute and transport of the training runtime.
find_library(MUSTER_DNNL dnnl REQUIRED)
find_library(MUSTER_GLOO gloo REQUIRED)
find_library(MUSTER_XXHASH libxxhash.a REQUIRED)
