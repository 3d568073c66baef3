# SPDX-License-Identifier: Apache-2.0
# Device code: each .cu file becomes a fatbin, embedded into the program as data. Nothing of the
# toolkit is linked, and the compiler never sees host code of ours.

if(MUSTER_CUDA STREQUAL "OFF")
  set(MUSTER_NVCC "")  # as where there is no toolkit
  set(MUSTER_CUDA_HEADERS "")
else()
  find_program(MUSTER_NVCC nvcc HINTS /usr/local/cuda/bin)
endif()
if(MUSTER_NVCC)
  get_filename_component(cuda_root ${MUSTER_NVCC} DIRECTORY)
  find_path(MUSTER_CUDA_HEADERS cuda.h HINTS ${cuda_root}/../include)
endif()
if(MUSTER_CUDA STREQUAL "ON" AND NOT MUSTER_NVCC)
  message(FATAL_ERROR "MUSTER_CUDA=ON, but no nvcc was found")
endif()
set(MUSTER_NVCC_VERSION 0)  # 13000 for 13.0
if(MUSTER_NVCC)
  execute_process(COMMAND ${MUSTER_NVCC} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
  if(nvcc_says MATCHES "release ([0-9]+)\\.([0-9]+)")
    math(EXPR MUSTER_NVCC_VERSION "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
  endif()
  message(STATUS "CUDA compiler: ${MUSTER_NVCC}, version ${MUSTER_NVCC_VERSION}")
else()
  message(STATUS "CUDA compiler: none; this build has no device code and runs on CPUs only")
endif()

# Real machine code for these, and PTX of the last for whatever comes later.
set(MUSTER_DEVICE_TARGETS 80 90 CACHE STRING "Compute capabilities, without the point")

# muster_device_code(OUT SOURCES...): a C++ file that defines device_images(), in OUT.
function(muster_device_code out)
  set(flags -std=c++20 --fmad=false -I${CMAKE_SOURCE_DIR} -Xfatbin=--compress-all
            -Xptxas=-warn-spills,-warn-lmem-usage)
  if(MUSTER_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  foreach(target IN LISTS MUSTER_DEVICE_TARGETS)
    list(APPEND flags -gencode=arch=compute_${target},code=sm_${target})
    set(newest ${target})
  endforeach()
  list(APPEND flags -gencode=arch=compute_${newest},code=compute_${newest})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/device)
  file(MAKE_DIRECTORY ${folder})
  set(fatbins "")
  set(MUSTER_IMAGE_SYMBOLS "")
  set(MUSTER_IMAGE_ENTRIES "")
  if(MUSTER_NVCC)
    foreach(source IN LISTS ARGN)
      get_filename_component(name ${source} NAME_WE)
      set(fatbin ${folder}/${name}.fatbin)
      add_custom_command(OUTPUT ${fatbin}
        COMMAND ${MUSTER_NVCC} ${flags} -MD -MF ${fatbin}.d -fatbin
                ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${fatbin}
        DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${fatbin}.d
        COMMENT "Device code ${source}" VERBATIM)
      list(APPEND fatbins ${fatbin})
      string(APPEND MUSTER_IMAGE_SYMBOLS "MUSTER_IMAGE(${name}, \"${fatbin}\")\n")
      string(APPEND MUSTER_IMAGE_ENTRIES "      image(\"${name}\", ${name}_begin, ${name}_end),\n")
    endforeach()
  endif()
  configure_file(${CMAKE_SOURCE_DIR}/scripts/cmake/device_images.cc.in ${folder}/device_images.cc
                 @ONLY)
  set_source_files_properties(${folder}/device_images.cc PROPERTIES OBJECT_DEPENDS "${fatbins}")
  set(${out} ${folder}/device_images.cc PARENT_SCOPE)
endfunction()
