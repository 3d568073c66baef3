# SPDX-License-Identifier: Apache-2.0
muster_test(launcher_options_test LABEL unit
  SOURCES unit/launcher/options_test.cc unit/launcher/chaos_plan_test.cc unit/launcher/device_options_test.cc
          unit/launcher/gpu_facts_test.cc unit/launcher/log_options_test.cc unit/launcher/placement_test.cc unit/launcher/program_test.cc unit/launcher/scheduler_test.cc
          unit/launcher/option_rows_test.cc unit/launcher/signal_options_test.cc
          unit/launcher/variables_test.cc
  LINK muster::run_options muster::json)
muster_test(hosting_test LABEL unit SOURCES unit/launcher/hosting_test.cc LINK muster::hosting)
muster_test(launcher_node_test LABEL unit SOURCES unit/launcher/registry_test.cc
          unit/launcher/token_file_test.cc
  LINK muster::launcher_node)
if(TARGET muster_launcher_commands)
  muster_test(endpoint_probe_test LABEL integration SOURCES unit/launcher/endpoint_probe_test.cc
    LINK muster::launcher_commands)
  muster_test(job_report_test LABEL unit SOURCES unit/launcher/job_report_test.cc
    LINK muster::launcher_commands muster::json)
endif()

muster_test(http_metrics_test LABEL unit
  SOURCES unit/http/metrics_test.cc LINK muster::job_metrics muster::node_book)
