"""What a Helm chart has to have within its folder, made from the files that have one place in this tree."""
