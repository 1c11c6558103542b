function __triton_ops
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (@PROGRAM@ @COMPLETE@ $words[2..] 2>/dev/null)
    if test "$lines[-1]" = "@NO_FILES@"
        set -e lines[-1]
    else
        __fish_complete_path (commandline -ct)
    end
    string join \n -- $lines
end
complete -c @PROGRAM@ -f -a '(__triton_ops)'
