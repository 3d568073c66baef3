// SPDX-License-Identifier: Apache-2.0
//
// Messages larger than any legal one: refused in words, and the server is none the worse for it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

#include "launcher/rendezvous/shell/control_client.h"
#include "muster/v1/control.grpc.pb.h"
#include "muster/v1/rendezvous.grpc.pb.h"
#include "proto/transport/file.h"
#include "proto/wire/messages.h"
#include "tests/unit/rendezvous_shell/net_harness.h"

namespace muster {
namespace {

using test::NetAgent;
using test::NetServer;

// One whose own gRPC lets everything through.
std::shared_ptr<grpc::Channel> boundless_channel(int port) {
  transport::File file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(file.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomInsecureChannelFromFd("muster", file.release(), arguments);
}

std::string oversize() {
  return std::string(wire::kMaxMessageBytes + 1, 'x');
}

// The end of a stream on which this was said.
grpc::Status end_of(grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>& stream,
                    const v1::AgentMessage& message) {
  stream.Write(message);
  v1::ServerMessage ignored;
  while (stream.Read(&ignored)) {
  }
  return stream.Finish();
}

void check_refused(const grpc::Status& status) {
  INFO(status.error_code() << ": " << status.error_message());
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message().find("larger than max") != std::string::npos);
}

}  // namespace

TEST_CASE("a message that is too large is refused, and others notice nothing", "[net_oversize]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + test::kLimit);

  SECTION("a join") {
    const auto stub = v1::Rendezvous::NewStub(boundless_channel(port));
    const auto stream = stub->Attach(&context);
    v1::AgentMessage join = wire::to_wire(test::join_message("other", "b", 1, 1));
    join.mutable_join()->mutable_spec()->set_program(oversize());
    check_refused(end_of(*stream, join));
  }
  SECTION("a key of a member's worker") {
    const auto stub = v1::Rendezvous::NewStub(boundless_channel(port));
    const auto stream = stub->Attach(&context);
    stream->Write(wire::to_wire(test::join_message("other", "b", 2, 2)));
    v1::ServerMessage accepted;
    REQUIRE(stream->Read(&accepted));
    StoreRequest request;
    request.op = StoreRequest::Op::kSet;
    request.generation = 0;
    request.key = "k";
    request.value = oversize();
    check_refused(end_of(*stream, wire::to_wire(request)));
  }
  SECTION("an order") {
    const auto stub = v1::Control::NewStub(boundless_channel(port));
    v1::OperateRequest request;
    request.set_job("job");
    request.set_by(oversize());
    request.mutable_stop();
    v1::OperateReply reply;
    check_refused(stub->Operate(&context, request, &reply));
  }
  SECTION("a question") {
    const auto stub = v1::Control::NewStub(boundless_channel(port));
    v1::DescribeRequest request;
    request.set_job(oversize());
    v1::DescribeReply reply;
    check_refused(stub->Describe(&context, request, &reply));
  }

  NetAgent late(thread, port);
  REQUIRE(late.open());
  REQUIRE(late.run_up("late"));
  REQUIRE(late.finish_job());
  CHECK(agent.down.size() == 0);
  REQUIRE(agent.finish_job());
}

TEST_CASE("what arrives cannot fill the server's memory", "[net_oversize]") {
  // gRPC would take in the whole of a message before it looks at its size.
  rendezvous::ServerOptions options = test::server_options();
  options.max_incoming_bytes = 48U << 20U;
  NetServer server(std::move(options));
  const int port = server.listen();
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + test::kLimit);
    const auto stub = v1::Control::NewStub(boundless_channel(port));
    v1::OperateRequest request;
    request.set_by(std::string(96U << 20U, 'x'));
    v1::OperateReply reply;
    const grpc::Status status = stub->Operate(&context, request, &reply);
    INFO(status.error_code() << ": " << status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(status.error_message().find("larger than max") == std::string::npos);  // not whole
  }
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  REQUIRE(agent.finish_job());
}

}  // namespace muster
