_triton_ops() {
    local IFS=$'\n' lines
    lines=($(@PROGRAM@ @COMPLETE@ "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [ "${lines[-1]}" = "@NO_FILES@" ]; then unset 'lines[-1]'; else compopt -o default; fi
    COMPREPLY=("${lines[@]%%$'\t'*}")
}
complete -F _triton_ops @PROGRAM@
