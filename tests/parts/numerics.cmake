muster_test(numerics_test LABEL unit TIMEOUT 300
  SOURCES unit/numerics/half_test.cc unit/numerics/math_test.cc unit/numerics/state_test.cc
          unit/numerics/kernels_test.cc unit/numerics/product_isa_test.cc
  LINK muster::numerics muster::cpu)
muster_test(model_test LABEL unit TIMEOUT 300
  SOURCES unit/numerics/layout_test.cc unit/numerics/gpt_test.cc unit/numerics/gradient_test.cc
          unit/numerics/optimizer_test.cc unit/numerics/step_test.cc
  LINK muster::model muster::optim gomp)
# Exact comparisons: the tests' own arithmetic must not be contracted either, and the reference
# computations should not take minutes in unoptimised builds.
foreach(target IN ITEMS numerics_test model_test)
  target_compile_options(${target} PRIVATE -O2 -ffp-contract=off)
endforeach()

# A copy of an inline function that was made for AVX must not be linked into other files: the
# files of wide instruction sets export their table and nothing else.
add_test(NAME isa_symbols COMMAND sh -c
  "test \"$(nm -A --defined-only -g '$<TARGET_FILE:muster_cpu_kernels>' | grep -E 'avx(2|512)[.]cc[.]o:' \
    | grep -c -v -E '(_kernelsEv|DW[.]ref.*)$')\" = 0 && nm -A --defined-only -g '$<TARGET_FILE:muster_cpu_kernels>' \
    | grep -q 'avx512[.]cc[.]o:.*avx512_kernelsEv$'")
set_tests_properties(isa_symbols PROPERTIES LABELS unit TIMEOUT 30)
